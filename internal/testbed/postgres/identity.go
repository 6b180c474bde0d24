package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// An identity is the user that the server and initdb run as. PostgreSQL refuses root, and initdb
// refuses a user id without a passwd entry.
type identity struct {
	name      string
	uid, gid  int  // owner of the server's files, seen from this process
	switches  bool // another user: setuid before exec
	namespace bool // this user, in its own user namespace (Linux)
}

// identities lists the possible identities, best first. The server of an existing cluster runs as
// its owner.
func identities(dataDir string) ([]identity, error) {
	self := identity{name: "this user", uid: os.Geteuid(), gid: os.Getegid()}
	mapped := self
	mapped.name, mapped.namespace = "a user namespace", true

	owner, exists := clusterOwner(dataDir)
	if self.uid != 0 {
		if exists && owner.uid != self.uid {
			return nil, fmt.Errorf("postgres: data directory %s belongs to user id %d (run as that user, or choose another directory)", dataDir, owner.uid)
		}
		if _, err := user.LookupId(strconv.Itoa(self.uid)); err != nil && namespaces {
			return []identity{mapped, self}, nil
		}
		return []identity{self}, nil
	}
	if exists && owner.uid != 0 {
		return []identity{owner}, nil
	}
	var list []identity
	if !exists {
		list = unprivileged()
	}
	if namespaces {
		list = append(list, mapped)
	}
	return list, nil
}

// unprivileged lists the users that root may run the server as.
func unprivileged() (list []identity) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			list = append(list, identity{name: name, uid: int(uid), gid: int(gid), switches: true})
		}
	}
	return list
}

// clusterOwner returns the owner of the cluster in dir, if it exists.
func clusterOwner(dir string) (identity, bool) {
	info, err := os.Stat(filepath.Join(dir, "PG_VERSION"))
	if dir == "" || err != nil {
		return identity{}, false
	}
	st := info.Sys().(*syscall.Stat_t)
	return identity{name: fmt.Sprintf("user id %d", st.Uid), uid: int(st.Uid), gid: int(st.Gid), switches: true}, true
}

// attr starts a child as i in its own process group. Ctrl-C then does not reach the server, so
// shutdown code can still use its database.
func (i identity) attr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	switch {
	case i.namespace:
		mapToNobody(attr)
	case i.switches:
		attr.Credential = &syscall.Credential{Uid: uint32(i.uid), Gid: uint32(i.gid)}
	}
	return attr
}

// command returns a command that runs a short-lived program as i.
func (i identity) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", childEnv(), i.attr()
	// initdb cleans up at SIGTERM.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// reaches reports whether i may enter dir. Only another user may lack that right.
func (i identity) reaches(dir string) bool {
	if !i.switches {
		return true
	}
	for {
		info, err := os.Stat(dir)
		if err == nil && !i.mayPass(info) {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

func (i identity) mayPass(info os.FileInfo) bool {
	if st := info.Sys().(*syscall.Stat_t); int(st.Uid) == i.uid {
		return info.Mode().Perm()&0o100 != 0
	}
	return info.Mode().Perm()&0o001 != 0
}

// own makes i the owner of a file.
func (i identity) own(path string) error {
	if !i.switches {
		return nil
	}
	return os.Lchown(path, i.uid, i.gid)
}

// identify returns the first identity that can run the binaries in bin and reach dataDir, and their
// version.
func identify(ctx context.Context, bin, dataDir string) (identity, version, error) {
	list, err := identities(dataDir)
	if err != nil {
		return identity{}, version{}, err
	}
	var tried []string
	forbidden := true // all failures so far were about changing the user, not about this file
	for _, who := range list {
		if dataDir != "" && !who.reaches(filepath.Dir(dataDir)) {
			tried = append(tried, fmt.Sprintf("%s cannot reach %s", who.name, dataDir))
			continue
		}
		out, err := who.command(ctx, filepath.Join(bin, "postgres"), "--version").Output()
		if err != nil {
			tried = append(tried, fmt.Sprintf("as %s: %s", who.name, oneLine(reason(err))))
			forbidden = forbidden && errors.Is(err, syscall.EPERM)
			continue
		}
		v, err := parseVersion(string(out))
		return who, v, err
	}
	if forbidden && os.Geteuid() == 0 {
		return identity{}, version{}, errIdentity
	}
	return identity{}, version{}, fmt.Errorf("postgres: the binaries in %s do not run: %s", bin, strings.Join(tried, "; "))
}

// errIdentity ends the search, because other binaries would fail in the same way.
var errIdentity = errors.New("postgres: the server refuses to run as root, and this process may neither change its user id " +
	"nor make a user namespace (run it as an ordinary user, or allow it setuid)")

// reason returns the stderr of a failed child, or else its exit status.
func reason(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return string(exit.Stderr)
	}
	return err.Error()
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// childEnv returns our environment without variables that change the server. Those are PG* (a
// foreign port or service) and the locale. It sets LC_ALL, because without a locale the macOS
// server does not start.
func childEnv() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "LC_") || name == "LANG" || name == "LANGUAGE" || name == "TZ" {
			continue
		}
		env = append(env, entry)
	}
	return env
}
