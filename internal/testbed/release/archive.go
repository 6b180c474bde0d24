package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"path"
	"strings"
	"time"
)

// A file is one in an archive. A name that ends with a slash is a directory.
type file struct {
	name string
	mode int64
	text []byte
}

// tarball packs files, with the same octets for the same files and date.
func tarball(date time.Time, files []file) []byte {
	var out bytes.Buffer
	zipped, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is valid
	packed := tar.NewWriter(zipped)
	for _, f := range files {
		h := &tar.Header{Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.text)), ModTime: date, Uname: "root", Gname: "root"}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		sure(packed.WriteHeader(h))
		_, err := packed.Write(f.text)
		sure(err)
	}
	sure(packed.Close())
	sure(zipped.Close())
	return out.Bytes()
}

// sure panics. A write to memory fails only for a header that this package got wrong.
func sure(err error) {
	if err != nil {
		panic(err)
	}
}

// debianPackage packs pawl, its completions and its licences as deb(5) says.
func debianPackage(version, arch string, date time.Time, binary, licences []byte, completions map[string][]byte) []byte {
	files := []file{
		{"usr/bin/pawl", 0o755, binary},
		{"usr/share/bash-completion/completions/pawl", 0o644, completions["bash"]},
		{"usr/share/doc/pawl/copyright", 0o644, licences},
		{"usr/share/fish/vendor_completions.d/pawl.fish", 0o644, completions["fish"]},
		{"usr/share/zsh/vendor-completions/_pawl", 0o644, completions["zsh"]},
	}
	var size int
	for _, f := range files {
		size += len(f.text)
	}
	// A tilde sorts before the end, so 0.1.0~rc.1 is older than 0.1.0.
	control := fmt.Sprintf(`Package: pawl
Version: %s
Architecture: %s
Maintainer: The Pawl authors <pawl-go@users.noreply.github.com>
Installed-Size: %d
Suggests: bash-completion, postgresql
Section: database
Priority: optional
Homepage: https://%s
Description: at-least-once in, exactly one effect out, on plain PostgreSQL
 The command line of Pawl. It installs and checks the schema, shows and
 changes what waits, and runs private servers for development.
`, strings.Replace(strings.TrimPrefix(version, "v"), "-", "~", 1), arch, (size+1023)/1024, core)
	var out bytes.Buffer
	out.WriteString("!<arch>\n")
	for _, member := range []struct {
		name string
		text []byte
	}{
		{"debian-binary", []byte("2.0\n")},
		{"control.tar.gz", tarball(date, []file{{"./", 0o755, nil}, {"./control", 0o644, []byte(control)}})},
		{"data.tar.gz", tarball(date, withParents(files))},
	} {
		fmt.Fprintf(&out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", member.name, date.Unix(), 0, 0, "100644", len(member.text), member.text)
		if len(member.text)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}

// withParents puts each directory before the first file in it, because dpkg makes no directory that
// the package does not have.
func withParents(files []file) (all []file) {
	known := map[string]bool{}
	var add func(dir string)
	add = func(dir string) {
		if known[dir] {
			return
		}
		known[dir] = true
		if dir != "." {
			add(path.Dir(dir))
			dir = "./" + dir
		}
		all = append(all, file{dir + "/", 0o755, nil})
	}
	for _, f := range files {
		add(path.Dir(f.name))
		f.name = "./" + f.name
		all = append(all, f)
	}
	return all
}
