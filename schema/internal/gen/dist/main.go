// Command dist writes schema/dist/pawl.sql, the whole contract as one script for psql. Run it with
// go generate in schema.
package main

import (
	"log"
	"os"

	"github.com/pawl-go/pawl/migrate"
)

func main() {
	log.SetFlags(0)
	files, err := migrate.Files(migrate.Plain, 0, migrate.Numbering{})
	if err == nil {
		err = os.WriteFile("dist/pawl.sql", []byte(files[0].Text), 0o644)
	}
	if err != nil {
		log.Fatalf("dist: %v", err)
	}
}
