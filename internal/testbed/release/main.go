package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: release set VERSION | check VERSION | tags VERSION | build VERSION DIR | modules")

func run(args []string) error {
	t, err := openTree(".")
	if err != nil {
		return err
	}
	switch {
	case len(args) == 2 && args[0] == "set":
		if err := t.untagged(args[1]); err != nil {
			return err
		}
		return t.set(args[1])
	case len(args) == 2 && args[0] == "check":
		return t.check(args[1])
	case len(args) == 2 && args[0] == "tags":
		for _, dir := range published {
			fmt.Println(tagOf(dir, args[1]))
		}
		return nil
	case len(args) == 3 && args[0] == "build":
		return t.build(args[1], args[2])
	case len(args) == 1 && args[0] == "modules":
		return modules(t)
	}
	return errUsage
}

// modules tests that each module, without the workspace, requires what it imports and no more. That
// it also builds with these versions is a test of the proof.
func modules(t *tree) (err error) {
	if found := t.fit(); len(found) > 0 {
		return errors.New(strings.Join(found, "\n"))
	}
	r, err := rehearse(t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	return r.eachByItself(t, "mod", "tidy", "-diff")
}
