package postgres

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// prefix begins the names of our directories. The sweep searches for it.
const prefix = "pawl-pg-"

// port is only part of the socket file's name. It is fixed so that PGPORT in the environment has no
// effect.
const port = "5432"

// socketLimit returns the longest socket path that the system accepts, in bytes.
func socketLimit() int {
	if runtime.GOOS == "linux" {
		return 107
	}
	return 103 // macOS and the BSDs
}

// socketIn returns the socket's path in a directory.
func socketIn(dir string) string { return filepath.Join(dir, ".s.PGSQL."+port) }

// parents returns the possible parents of a server's directory, best first.
func (o Options) parents() []string {
	list := []string{o.tune.temp, "/tmp"}
	if o.RAM && o.DataDir == "" && !o.Durable {
		if dir, ok := ramDir(); ok {
			list = slices.Insert(list, 0, dir)
		}
	}
	return slices.Compact(list)
}

// makeDir creates the directory for socket, lock, log and throwaway cluster, with mode 0700 and
// owned by who. It skips a parent that the server cannot reach or that makes the socket's path too
// long.
func (o Options) makeDir(who identity) (string, error) {
	var tried []string
	for _, parent := range o.parents() {
		if err := usableParent(parent, who); err != nil {
			tried = append(tried, err.Error())
			continue
		}
		dir, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			tried = append(tried, err.Error())
			continue
		}
		if err := who.own(dir); err != nil {
			_ = os.Remove(dir)
			return "", fmt.Errorf("postgres: hand %s to %s: %w", dir, who.name, err)
		}
		return dir, nil
	}
	return "", fmt.Errorf("postgres: no place for the socket: %s (set TMPDIR to a short path that %s can reach)",
		strings.Join(tried, "; "), who.name)
}

func usableParent(parent string, who identity) error {
	const random = 10 // digits os.MkdirTemp may add
	if length := len(socketIn(filepath.Join(parent, prefix+strings.Repeat("0", random)))); length > socketLimit() {
		return fmt.Errorf("%s makes a socket path of %d bytes, %d are allowed", parent, length, socketLimit())
	}
	if !who.reaches(parent) {
		return fmt.Errorf("%s cannot reach %s", who.name, parent)
	}
	return nil
}

// linkName returns the path where clients of the cluster in dataDir find its socket at every start.
// It is inside dataDir. If that path is too long or contains a comma, which separates hosts, the
// link is in the directory for temporary files, with a hash of dataDir in its name.
func (o Options) linkName(dataDir string) string {
	name := filepath.Join(dataDir, linkFile)
	if len(socketIn(name)) <= socketLimit() && !strings.Contains(name, ",") {
		return name
	}
	hash := sha256.Sum256([]byte(dataDir))
	base := fmt.Sprintf("pawl-socket-%x", hash[:8])
	if name = filepath.Join(o.tune.temp, base); len(socketIn(name)) > socketLimit() {
		name = filepath.Join("/tmp", base)
	}
	return name
}
