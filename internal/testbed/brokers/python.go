package brokers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A pythonProgram is a server written in Python. It is installed from PyPI into its own virtual
// environment, once per version.
type pythonProgram struct {
	name, version string
	oldest        int // least minor version of Python 3
	// packages have pinned versions, because later versions may not fit together.
	packages  string
	megabytes int // size when installed
}

// Python returns an interpreter with the given PyPI packages, one "name==version" per line. name
// and version are those of the first package.
func Python(ctx context.Context, name, version, packages string, o Options) (string, error) {
	return pythonProgram{name: name, version: version, oldest: 11, packages: packages, megabytes: 30}.python(ctx, o)
}

// python returns the interpreter of the environment. It still works after the rename of cached, but
// the scripts beside it do not.
func (p pythonProgram) python(ctx context.Context, o Options) (string, error) {
	name := p.name + "-" + p.version
	home, err := cachePath(name, "venv")
	if err != nil {
		return "", err
	}
	interpreter := filepath.Join(home, "bin", "python")
	_, absent := os.Lstat(home)
	if _, err := os.Stat(interpreter); err != nil && absent == nil {
		// The Python that created it is gone.
		if err := os.RemoveAll(home); err != nil {
			return "", err
		}
	}
	_, err = cached(name, "venv", func(fresh string) error {
		found, err := p.findPython(ctx)
		if err != nil {
			return err
		}
		o.say(fmt.Sprintf("installing %s %s from PyPI, %d MB, once", p.name, p.version, p.megabytes))
		return p.install(ctx, found, fresh)
	})
	return interpreter, err
}

func (p pythonProgram) install(ctx context.Context, python, fresh string) error {
	list := filepath.Join(fresh, "packages.txt")
	if err := os.WriteFile(list, []byte(p.packages), 0o600); err != nil {
		return err
	}
	venv := filepath.Join(fresh, "venv")
	for _, command := range [][]string{
		{python, "-m", "venv", venv},
		{filepath.Join(venv, "bin", "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "-r", list},
	} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: cannot be installed; give pip network access: %w\n%s", p.name, err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// findPython returns a Python that is new enough and can create environments. It tries PAWL_PYTHON,
// else the PATH and then pyenv.
func (p pythonProgram) findPython(ctx context.Context) (string, error) {
	candidates := []string{os.Getenv("PAWL_PYTHON")}
	if candidates[0] == "" {
		candidates = []string{"python3", "python3.14", "python3.13", "python3.12"}
		if home, err := os.UserHomeDir(); err == nil {
			versions, _ := filepath.Glob(filepath.Join(home, ".pyenv", "versions", "3.*", "bin", "python3"))
			slices.Reverse(versions)
			candidates = append(candidates, versions...)
		}
	}
	for _, candidate := range candidates {
		out, err := exec.CommandContext(ctx, candidate, "-c", "import sys, ensurepip; print(sys.version_info[1])").Output()
		if minor, bad := strconv.Atoi(strings.TrimSpace(string(out))); err == nil && bad == nil && minor >= p.oldest {
			return candidate, nil
		}
	}
	return "", errors.New(p.name + ": install Python 3." + strconv.Itoa(p.oldest) + " or newer with its module venv (Debian: python3 and python3-venv), or name " +
		"one in PAWL_PYTHON")
}
