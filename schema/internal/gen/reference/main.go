// Command reference writes docs/reference/sql.md from the comments in schema/api and from
// sql.md.tmpl. Run it with go generate in schema.
//
//	contract.go  the functions and views in schema/api: signatures and header comments
//	header.go    the format of a header comment
//	page.go      the page: the template with each section in place of its name
//	markdown.go  a header comment as Markdown
package main

import (
	"log"
	"os"
	"path/filepath"
)

func main() {
	log.SetFlags(0)
	c, err := load(".")
	if err != nil {
		log.Fatalf("reference: %v", err)
	}
	text, err := page(c, template)
	if err == nil {
		err = os.WriteFile(filepath.Join("..", "docs", "reference", "sql.md"), []byte(text), 0o644)
	}
	if err != nil {
		log.Fatalf("reference: %v", err)
	}
}
