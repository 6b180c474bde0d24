package postgres

import (
	"os"
	"runtime"
	"strings"
)

// installLine returns the command that installs a server on this system.
func installLine() string {
	if runtime.GOOS == "darwin" {
		return "install it with: brew install postgresql@17"
	}
	release, _ := os.ReadFile("/etc/os-release")
	return "install it with: " + installCommand(string(release))
}

// installCommand returns the command for the text of /etc/os-release.
func installCommand(release string) string {
	commands := []struct{ system, command string }{
		{"debian", "sudo apt-get install -y postgresql"},
		{"ubuntu", "sudo apt-get install -y postgresql"},
		{"fedora", "sudo dnf install -y postgresql-server"},
		{"rhel", "sudo dnf install -y postgresql-server"},
		{"suse", "sudo zypper install -y postgresql-server"},
		{"arch", "sudo pacman -S --noconfirm postgresql"},
		{"alpine", "sudo apk add postgresql"},
	}
	var ids string
	for line := range strings.Lines(release) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if name == "ID" || name == "ID_LIKE" {
			ids += " " + strings.Trim(value, `"'`)
		}
	}
	for _, known := range commands {
		if strings.Contains(ids, known.system) {
			return known.command
		}
	}
	return "your system's package of the PostgreSQL server, version 15 or later"
}
