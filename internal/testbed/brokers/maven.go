package brokers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// A mavenProgram is a server in Java whose jars Maven fetches, once per version.
type mavenProgram struct {
	name, version string
	megabytes     int
	artifacts     []string // group:artifact:version
	otherwise     string   // ends an error: what to do without Maven or its network
}

// jars returns a class path.
func (p mavenProgram) jars(ctx context.Context, o Options) (string, error) {
	lib, err := cached(p.name+"-"+p.version, "lib", func(fresh string) error { return p.fetch(ctx, o, fresh) })
	return filepath.Join(lib, "*"), err
}

func (p mavenProgram) fetch(ctx context.Context, o Options, dir string) error {
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return errors.New(p.name + ": install Maven (Debian: maven), which fetches the jars" + p.otherwise)
	}
	o.say(fmt.Sprintf("fetching %s %s with Maven, %d MB, once", p.name, p.version, p.megabytes))
	if err := os.WriteFile(filepath.Join(dir, "pom.xml"), []byte(p.pom()), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=lib")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: cannot fetch the jars; give Maven network access%s: %w\n%s", p.name, p.otherwise, err, bytes.TrimSpace(out))
	}
	return nil
}

// pom returns the project whose dependencies are the artifacts.
func (p mavenProgram) pom() string {
	var all strings.Builder
	for _, a := range p.artifacts {
		part := strings.Split(a, ":")
		fmt.Fprintf(&all, "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>\n", part[0], part[1], part[2])
	}
	return `<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>io.pawl</groupId><artifactId>` + p.name + `</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
` + all.String() + `</dependencies>
</project>
`
}

const oldestJava = 17

// findJava returns the path of a Java that is oldestJava or newer, for the server with that name.
func findJava(ctx context.Context, name string) (string, error) {
	java := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java = filepath.Join(home, "bin", "java")
	}
	path, err := exec.LookPath(java)
	if err != nil {
		return "", fmt.Errorf("%s: install a Java runtime, version %d or newer (Debian: openjdk-17-jre-headless), or name one in JAVA_HOME: %w", name, oldestJava, err)
	}
	out, err := exec.CommandContext(ctx, path, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %s -version: %w\n%s", name, path, err, bytes.TrimSpace(out))
	}
	if major, known := javaMajor(string(out)); known && major < oldestJava {
		return "", fmt.Errorf("%s: %s is Java %d, and it needs %d or newer: install one, or name it in JAVA_HOME", name, path, major, oldestJava)
	}
	return path, nil
}

// javaMajor reads `openjdk version "17.0.15" 2025-04-15` and, for Java 8 and older, "1.8.0_292".
func javaMajor(text string) (int, bool) {
	_, rest, found := strings.Cut(text, `version "`)
	if !found {
		return 0, false
	}
	rest = strings.TrimPrefix(rest, "1.")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end <= 0 {
		return 0, false
	}
	major, err := strconv.Atoi(rest[:end])
	return major, err == nil
}
