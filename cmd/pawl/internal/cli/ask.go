package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/pawl-go/pawl/internal/text"
)

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// agreed asks a person for consent. Only y or yes count; an interruption means no.
func agreed(ctx context.Context, in io.Reader, out io.Writer, question string) bool {
	fmt.Fprint(out, text.Visible(question))
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		line = strings.ToLower(strings.TrimSpace(line))
		return line == "y" || line == "yes"
	case <-ctx.Done():
		fmt.Fprintln(out)
		return false
	}
}
