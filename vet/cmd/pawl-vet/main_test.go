package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const program = `package orders

import (
	"context"
	"database/sql"
	"fmt"
)

var db *sql.DB

func pay(ctx context.Context, tx *sql.Tx, id string) error {
	if _, err := db.ExecContext(ctx, "update stock set n = n - 1 where id = $1", id); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "update orders set paid = true where id = $1", id); err != nil {
		fmt.Println(err)
	}
	return nil
}
`

// The command reports the same alone and as the tool of go vet, and fails if it reports anything.
func TestCommand_RunsAloneAndUnderGoVet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tool := filepath.Join(dir, "pawl-vet")
	if out, err := exec.Command("go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	module := filepath.Join(dir, "orders")
	if err := os.Mkdir(module, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"go.mod": "module orders\n\ngo 1.25\n", "orders.go": program, "orders_test.go": strings.Replace(program, "package orders", "package orders_test", 1)} {
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{tool, "./..."}, {"go", "vet", "-vettool=" + tool, "./..."}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("%v passes", args)
		}
		for _, want := range []string{
			"orders.go:12:29: a second connection is used inside a transaction", "patterns.md#no-calls-inside-a-transaction",
			"orders.go:15:29: the error of a statement is only logged", "patterns.md#no-swallowed-sql-errors",
		} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%v does not print %q:\n%s", args, want, out)
			}
		}
		if strings.Contains(string(out), "orders_test.go") {
			t.Errorf("%v reports a test:\n%s", args, out)
		}
	}
}
