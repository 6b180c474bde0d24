package postgres

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func itoa(n int) string { return strconv.Itoa(n) }

// TestMain can run the test binary as a program that uses the package and is killed.
func TestMain(m *testing.M) {
	switch os.Getenv("PAWL_TEST_CHILD") {
	case "":
		os.Exit(m.Run())
	case "answer":
		childAnswer()
	case "hold":
		childHold()
	}
}

// child returns a command that runs this binary as the named program.
func child(t *testing.T, program string, env ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(append(os.Environ(), env...), "PAWL_TEST_CHILD="+program)
	cmd.Stderr = os.Stderr
	return cmd
}

// childAnswer prints the result of a query.
func childAnswer() {
	ctx := context.Background()
	s, err := Start(ctx, Options{})
	exitOn(err)
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	exitOn(err)
	var answer int
	exitOn(conn.QueryRow(ctx, "select 42").Scan(&answer))
	exitOn(s.Stop())
	fmt.Println(answer)
}

// A held describes the server of a program that holds one.
type held struct {
	Program, Server, Watchdog int
	Dir, URL                  string
}

// childHold starts a server on DATA_DIR (default: throwaway) and holds it until it is killed.
func childHold() {
	s, err := Start(context.Background(), Options{DataDir: os.Getenv("DATA_DIR"), tune: tuning{temp: os.Getenv("TEMP_DIR")}})
	exitOn(err)
	exitOn(json.NewEncoder(os.Stdout).Encode(held{os.Getpid(), s.PID(), s.dog.cmd.Process.Pid, s.Dir(), s.URL("postgres")}))
	_, _ = io.Copy(io.Discard, os.Stdin) // until this process is killed or the test has ended
}

// hold runs a holder and returns once its server answers.
func hold(t *testing.T, env ...string) (*exec.Cmd, held) {
	t.Helper()
	cmd := child(t, "hold", env...)
	out, err := cmd.StdoutPipe()
	must(t, err)
	_, err = cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	must(t, err)
	var h held
	must(t, json.Unmarshal(line, &h))
	return cmd, h
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
