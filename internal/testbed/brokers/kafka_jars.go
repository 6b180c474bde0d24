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

// kafkaVersion is the Kafka that is fetched if none is installed. Its slf4j needs log4j-slf4j-impl
// to report why a start failed, and Kafka does not depend on that.
const (
	kafkaVersion  = "4.3.1"
	kafkaArtifact = "kafka_2.13"
	kafkaLog4j    = "2.25.4"
	oldestJava    = 17
)

const kafkaPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.pawl</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>` + kafkaArtifact + `</artifactId><version>` + kafkaVersion + `</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>` + kafkaLog4j + `</version></dependency>
  </dependencies>
</project>
`

// kafkaJars returns a class path that contains the broker.
func kafkaJars(ctx context.Context, o Options) (string, error) {
	if home := os.Getenv("PAWL_KAFKA_HOME"); home != "" {
		libs := filepath.Join(home, "libs")
		if _, err := os.Stat(libs); err != nil {
			return "", fmt.Errorf("kafka: PAWL_KAFKA_HOME must be the directory of an unpacked Kafka that contains libs: %w", err)
		}
		return filepath.Join(libs, "*"), nil
	}
	cache, err := cacheDir("kafka-" + kafkaVersion)
	if err != nil {
		return "", err
	}
	lib := filepath.Join(cache, "lib")
	if _, err := os.Stat(lib); err == nil {
		return filepath.Join(lib, "*"), nil
	}
	if err := fetchKafka(ctx, o, cache, lib); err != nil {
		return "", err
	}
	return filepath.Join(lib, "*"), nil
}

// fetchKafka fetches into a temporary directory and renames it. If two programs fetch at once, the
// first rename wins.
func fetchKafka(ctx context.Context, o Options, cache, lib string) error {
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return errors.New("kafka: install Maven, which fetches the jars, or unpack Kafka " + kafkaVersion + " and set PAWL_KAFKA_HOME to its directory")
	}
	o.Log("fetching Kafka " + kafkaVersion + " with Maven, 44 MB, once")
	fresh, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	if err := os.WriteFile(filepath.Join(fresh, "pom.xml"), []byte(kafkaPOM), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=lib")
	cmd.Dir = fresh
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kafka: cannot fetch the jars; unpack Kafka %s and set PAWL_KAFKA_HOME to its directory, or give Maven network access: %w\n%s",
			kafkaVersion, err, bytes.TrimSpace(out))
	}
	if err := os.Rename(filepath.Join(fresh, "lib"), lib); err != nil {
		if _, there := os.Stat(lib); there != nil {
			return err
		}
	}
	return nil
}

// findJava returns the path of a Java that is oldestJava or newer.
func findJava(ctx context.Context) (string, error) {
	java := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java = filepath.Join(home, "bin", "java")
	}
	path, err := exec.LookPath(java)
	if err != nil {
		return "", fmt.Errorf("kafka: install a Java runtime, version %d or newer (Debian: openjdk-17-jre-headless), or name one in JAVA_HOME: %w", oldestJava, err)
	}
	out, err := exec.CommandContext(ctx, path, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kafka: %s -version: %w\n%s", path, err, bytes.TrimSpace(out))
	}
	if major, known := javaMajor(string(out)); known && major < oldestJava {
		return "", fmt.Errorf("kafka: %s is Java %d, Kafka %s needs %d or newer: install one, or name it in JAVA_HOME", path, major, kafkaVersion, oldestJava)
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
