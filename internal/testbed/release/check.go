package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// fit returns the reasons why the published modules could not be fetched at any version.
func (t *tree) fit() (found []string) {
	modules := t.modules()
	for _, dir := range published {
		name := path.Join(dir, "go.mod")
		if !slices.Contains(modules, dir) {
			found = append(found, name+" is not there")
			continue
		}
		f, err := t.parse(dir)
		if err != nil {
			found = append(found, err.Error())
			continue
		}
		found = append(found, fitting(name, dir, f)...)
	}
	for _, dir := range modules {
		if !slices.Contains(published, dir) && !unpublished(dir) {
			found = append(found, dir+" is neither one of the published modules nor below bench, examples or internal")
		}
	}
	return found
}

func fitting(name, dir string, f *modfile.File) (found []string) {
	if f.Module.Mod.Path != pathOf(dir) {
		found = append(found, fmt.Sprintf("%s names the module %s, its directory says %s", name, f.Module.Mod.Path, pathOf(dir)))
	}
	if len(f.Replace)+len(f.Exclude) > 0 {
		found = append(found, name+" has a replace or exclude: go install refuses it, and go get ignores it")
	}
	for _, r := range f.Require {
		p := r.Mod.Path
		if (p == core || strings.HasPrefix(p, core+"/")) && !isPublished(p) {
			found = append(found, fmt.Sprintf("%s requires %s, which is not published", name, p))
		}
	}
	return found
}

func unpublished(dir string) bool {
	first, _, _ := strings.Cut(dir, "/")
	return first == "bench" || first == "examples" || first == "internal"
}

// check returns an error if this tree cannot be tagged with the version.
func (t *tree) check(version string) error {
	found := t.fit()
	if status, err := git(t.root, "status", "--porcelain"); err != nil {
		return err
	} else if status != "" {
		found = append(found, "the working tree differs from HEAD, and a tag is of HEAD: commit or stash\n"+strings.TrimRight(status, "\n"))
	}
	if log, err := os.ReadFile(filepath.Join(t.root, "CHANGELOG.md")); err != nil {
		return err
	} else if !strings.Contains(string(log), "\n## "+version+" ") {
		found = append(found, "CHANGELOG.md has no section `## "+version+" – DATE`")
	}
	if err := t.untagged(version); err != nil {
		found = append(found, err.Error())
	}
	differ, err := t.differs(version)
	if err != nil {
		return err
	}
	for _, name := range differ {
		found = append(found, name+" is not what `set "+version+"` writes")
	}
	if len(found) > 0 {
		return errors.New(strings.Join(found, "\n"))
	}
	return nil
}

// untagged refuses a version that has a tag: it is released, and its hashes belong to another tree.
func (t *tree) untagged(version string) error {
	for _, dir := range published {
		tag := tagOf(dir, version)
		if known, err := git(t.root, "tag", "--list", tag); err != nil {
			return err
		} else if known != "" {
			return errors.New("the tag " + tag + " exists, and a version is tagged only once")
		}
	}
	return nil
}

// differs returns the files that set would change.
func (t *tree) differs(version string) (names []string, err error) {
	dir, err := os.MkdirTemp("", "release-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	should, err := t.copyTo(dir)
	if err != nil {
		return nil, err
	}
	if err := should.set(version); err != nil {
		return nil, err
	}
	for _, name := range t.files {
		is, err := os.ReadFile(filepath.Join(t.root, name))
		if err != nil {
			return nil, err
		}
		if want, err := os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		} else if string(is) != string(want) {
			names = append(names, name)
		}
	}
	return names, nil
}
