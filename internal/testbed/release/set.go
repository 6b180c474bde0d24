package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// set writes a version into every go.mod that requires Pawl, into go.work, and into the go.sum of
// published modules.
func (t *tree) set(version string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("%q is not a version: write v1.2.3 or v1.2.3-rc.1", version)
	}
	for _, dir := range t.modules() {
		if err := t.setRequired(dir, version); err != nil {
			return err
		}
	}
	// Before the hashes, because go.work is a file of the core.
	if err := t.setWork(version); err != nil {
		return err
	}
	sums := map[string][2]string{}
	// A module follows its requirements, because their hashes go into its go.sum and so into its
	// own hash.
	for _, dir := range published {
		if err := t.setSums(dir, sums); err != nil {
			return err
		}
		lines, err := t.sums(dir, version)
		if err != nil {
			return err
		}
		sums[pathOf(dir)] = lines
	}
	return nil
}

func (t *tree) parse(dir string) (*modfile.File, error) {
	name := filepath.Join(t.root, dir, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, text, nil)
}

// setRequired sets the version of every published module that a module requires.
func (t *tree) setRequired(dir, version string) error {
	f, err := t.parse(dir)
	if err != nil {
		return err
	}
	for _, r := range f.Require {
		if isPublished(r.Mod.Path) {
			if err := f.AddRequire(r.Mod.Path, version); err != nil {
				return err
			}
		}
	}
	f.Cleanup()
	text, err := f.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(t.root, dir, "go.mod"), text, 0o644)
}

// setWork makes go.work replace every published module at this version by its directory. The go
// command reads the go.mod of every required version, even for modules of the workspace, and this
// version does not exist until it is tagged.
//
// The replace lines of unpublished modules also apply in the workspace. They would suffice as long
// as they name every module.
func (t *tree) setWork(version string) error {
	name := filepath.Join(t.root, "go.work")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	f, err := modfile.ParseWork(name, text, nil)
	if err != nil {
		return err
	}
	for _, r := range slices.Clone(f.Replace) {
		if isPublished(r.Old.Path) {
			if err := f.DropReplace(r.Old.Path, r.Old.Version); err != nil {
				return err
			}
		}
	}
	f.Cleanup()
	for _, dir := range published {
		local := "."
		if dir != "." {
			local = "./" + dir
		}
		if err := f.AddReplace(pathOf(dir), version, local, ""); err != nil {
			return err
		}
	}
	f.Cleanup()
	return os.WriteFile(name, modfile.Format(f.Syntax), 0o644)
}

// setSums writes the hashes of the required published modules into a module's go.sum.
func (t *tree) setSums(dir string, sums map[string][2]string) error {
	f, err := t.parse(dir)
	if err != nil {
		return err
	}
	name := filepath.Join(t.root, dir, "go.sum")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(text)), "\n"), func(line string) bool {
		return line == "" || isPublished(strings.Fields(line)[0])
	})
	for _, r := range f.Require {
		if !isPublished(r.Mod.Path) {
			continue
		}
		needed, known := sums[r.Mod.Path]
		if !known {
			return fmt.Errorf("%s requires %s, which is not released before it", path.Join(dir, "go.mod"), r.Mod.Path)
		}
		lines = append(lines, needed[:]...)
	}
	return os.WriteFile(name, []byte(strings.Join(sorted(lines), "\n")+"\n"), 0o644)
}

// sorted sorts the lines of a go.sum as the go command does.
func sorted(lines []string) []string {
	key := func(line string) module.Version {
		words := strings.Fields(line)
		return module.Version{Path: words[0], Version: words[1]}
	}
	versions, at := make([]module.Version, 0, len(lines)), map[module.Version]string{}
	for _, line := range lines {
		versions = append(versions, key(line))
		at[key(line)] = line
	}
	module.Sort(versions)
	for i, v := range versions {
		lines[i] = at[v]
	}
	return lines
}
