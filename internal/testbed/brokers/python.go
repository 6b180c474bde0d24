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

// A pythonProgram is a server in Python. It is installed from PyPI into an environment of its own, once for each version.
type pythonProgram struct {
	name, version string
	oldest        int    // Python 3.x that it needs
	packages      string // all that it needs, each in the version that was tried: what fits together today may not tomorrow
	megabytes     int    // once installed
}

// Python returns an interpreter that has packages of PyPI, each given with its version, one a line. name and version are those of the first.
func Python(ctx context.Context, name, version, packages string, o Options) (string, error) {
	return pythonProgram{name: name, version: version, oldest: 11, packages: packages, megabytes: 30}.python(ctx, o)
}

// python returns the interpreter of the environment. It installs into a directory of its own and renames that: of two programs that install at
// once, the first to end wins. The interpreter bears the move, the scripts beside it do not.
func (p pythonProgram) python(ctx context.Context, o Options) (string, error) {
	cache, err := cacheDir(p.name + "-" + p.version)
	if err != nil {
		return "", err
	}
	home := filepath.Join(cache, "venv")
	interpreter := filepath.Join(home, "bin", "python")
	_, absent := os.Lstat(home)
	if _, err := os.Stat(interpreter); err == nil {
		return interpreter, nil
	}
	if absent == nil { // it is there, and the Python that it was made with is not
		if err := os.RemoveAll(home); err != nil {
			return "", err
		}
	}
	found, err := p.findPython(ctx)
	if err != nil {
		return "", err
	}
	if o.Log != nil {
		o.Log(fmt.Sprintf("installing %s %s from PyPI, %d MB, once", p.name, p.version, p.megabytes))
	}
	fresh, err := os.MkdirTemp(cache, "install-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	if err := p.install(ctx, found, fresh); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(fresh, "venv"), home); err != nil {
		if _, there := os.Stat(interpreter); there != nil {
			return "", err
		}
	}
	return interpreter, nil
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
			return fmt.Errorf("%s: it cannot be installed; give pip a network: %w\n%s", p.name, err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// findPython returns a Python that is new enough and can make environments: the one that PAWL_PYTHON names, one of the PATH, or one of pyenv.
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
