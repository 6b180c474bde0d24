//go:build proof

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A user follows docs/operating/deploy.md: pawl becomes a tool of the module, and the container
// file is taken from Pawl's module. No engine builds the image here. Instead this test runs the
// commands of the first stage in the user's module, and puts what the last stage copies into an
// empty root. There the entry point starts as the file's user, in the file's environment.
func TestContainerfile_InAnEmptyRoot(t *testing.T) {
	dir := usersModule(t)
	for _, command := range commandsOf(t, "../../../docs/operating/deploy.md", "## Build the image", 2) {
		do(t, ours, dir, "sh", "-ec", strings.Replace(command, "cmd/pawl", "cmd/pawl@"+ours.version, 1))
	}
	file, err := os.ReadFile(filepath.Join(dir, "Containerfile"))
	must(t, err)
	stages := strings.Split(string(file), "\nFROM ")
	first, last := stages[1], stages[len(stages)-1]
	r := *ours
	out := t.TempDir()
	r.env = append(slices.Clone(r.env), "WORKER=.", "CGO_ENABLED=0")
	for _, command := range lines(t, first, "RUN") {
		do(t, &r, dir, "sh", "-ec", strings.ReplaceAll(command, " /out/", " "+out+"/"))
	}

	root := t.TempDir()
	copied := strings.Fields(lines(t, last, "COPY")[0])
	for _, from := range copied[1 : len(copied)-1] {
		must(t, copyFile(strings.Replace(from, "/out/", out+"/", 1), filepath.Join(root, copied[len(copied)-1], filepath.Base(from))))
	}
	id, _, _ := strings.Cut(lines(t, last, "USER")[0], ":")
	user, err := strconv.ParseUint(id, 10, 32)
	must(t, err)
	var entry []string
	must(t, json.Unmarshal([]byte(lines(t, last, "ENTRYPOINT")[0]), &entry))
	if said := inside(t, root, uint32(user), lines(t, last, "ENV"), entry[0], entry[1:]...); !strings.Contains(said, "needs schema version ") {
		t.Errorf("the worker says %q", said)
	}
	works(t, root, filepath.Join(filepath.Dir(entry[0]), "pawl"), ours.version)
}

// lines returns the arguments of an instruction of a container file.
func lines(t *testing.T, text, instruction string) (arguments []string) {
	t.Helper()
	for _, found := range regexp.MustCompile(`(?m)^`+instruction+` (.*)$`).FindAllStringSubmatch(text, -1) {
		arguments = append(arguments, found[1])
	}
	if len(arguments) == 0 {
		t.Fatalf("the container file has no %s there", instruction)
	}
	return arguments
}

// commandsOf returns the first commands of the first block under a heading.
func commandsOf(t *testing.T, page, heading string, n int) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n"+heading+"\n")
	_, block, _ := strings.Cut(section, "```\n")
	block, _, _ = strings.Cut(block, "\n```")
	commands := strings.Split(block, "\n")
	if len(commands) < n {
		t.Fatalf("%s has the commands %q under %s", page, commands, heading)
	}
	return commands[:n]
}
