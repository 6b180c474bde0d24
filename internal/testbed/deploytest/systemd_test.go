package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sections parses a unit into values by section and key.
func sections(text string, f *findings) map[string]map[string][]string {
	all, current := map[string]map[string][]string{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		key, value, assigned := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			current = strings.Trim(line, "[]")
			f.check(allowed[current] != "", "%s: no section %s", unit, current)
			all[current] = map[string][]string{}
		case !assigned || current == "":
			f.add("%s: %q is no assignment in a section", unit, line)
		default:
			f.check(strings.Contains(allowed[current], " "+key+" "), "%s: no key %s in section %s", unit, key, current)
			all[current][key] = append(all[current][key], value)
		}
	}
	return all
}

// allowed are the keys that the unit uses. It serves machines without systemd. Where systemd is
// installed, systemd-analyze decides.
var allowed = map[string]string{
	"Unit": " Description Documentation Wants After StartLimitIntervalSec ",
	"Service": " Type ExecStart EnvironmentFile Environment Restart RestartSec KillSignal KillMode TimeoutStopSec DynamicUser UMask NoNewPrivileges" +
		" CapabilityBoundingSet ProtectSystem ProtectHome PrivateTmp PrivateDevices ProtectClock ProtectControlGroups ProtectKernelLogs ProtectKernelModules" +
		" ProtectKernelTunables RestrictAddressFamilies RestrictNamespaces RestrictRealtime RestrictSUIDSGID LockPersonality MemoryDenyWriteExecute" +
		" SystemCallArchitectures SystemCallFilter SystemCallErrorNumber ",
	"Install": " WantedBy ",
}

func lintUnit(text string, f *findings) {
	s := sections(text, f)["Service"]
	last := func(key string) string {
		if v := s[key]; len(v) > 0 {
			return v[len(v)-1]
		}
		return ""
	}
	env := map[string]string{}
	for _, e := range s["Environment"] {
		key, value, _ := strings.Cut(e, "=")
		env[key] = value
	}
	stop, err := time.ParseDuration(last("TimeoutStopSec") + "s")
	f.check(err == nil && stop >= stops(env, f)+margin, "%s: TimeoutStopSec=%s is shorter than %v and a margin of %v", unit, last("TimeoutStopSec"), stops(env, f), margin)
	f.check(last("KillSignal") == "SIGTERM", "%s: KillSignal=%s, and a program stops on SIGTERM", unit, last("KillSignal"))
	f.check(last("KillMode") == "mixed", "%s: KillMode=%s: only the program itself is to be told to stop", unit, last("KillMode"))
	f.check(last("Restart") == "always" || last("Restart") == "on-failure", "%s: Restart=%s leaves a failed program down", unit, last("Restart"))
	f.check(last("DynamicUser") == "yes" || last("User") != "" && last("User") != "root", "%s: no User: it runs as root", unit)
	f.check(last("EnvironmentFile") != "" && env[envDatabase] == "", "%s: %s is not from a file that only root reads", unit, envDatabase)
	portOf(env[envHealth], f)
}

// systemd accepts every line of the unit.
func TestUnit_PassesSystemdsOwnCheck(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here, which the package systemd brings: only TestDeploy_IsTakenAndAgrees has read the unit")
	}
	text := read(t)[unit]
	for name, try := range map[string]struct{ was, is, want string }{
		"as it is":       {"", "", ""},
		"a wrong key":    {"KillMode=", "KilMode=", "KilMode"},
		"a wrong value":  {"ProtectSystem=strict", "ProtectSystem=very", "very"},
		"a wrong signal": {"SIGTERM", "SIGSTOPP", "SIGSTOPP"},
	} {
		t.Run(name, func(t *testing.T) {
			// systemd-analyze looks for the program, which is the user's. An existing program
			// replaces it.
			planted := strings.ReplaceAll(text, "/usr/local/bin/orders-worker", "/bin/true")
			planted = strings.Replace(planted, try.was, try.is, 1)
			file := filepath.Join(t.TempDir(), "orders-worker.service")
			if err := os.WriteFile(file, []byte(planted), 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(analyze, "verify", "--man=no", file).CombinedOutput()
			if try.want == "" && (err != nil || len(out) > 0) {
				// It exits with 0 for what it ignores.
				t.Errorf("systemd-analyze verify: %v\n%s", err, out)
			}
			if !strings.Contains(string(out), try.want) {
				t.Errorf("systemd-analyze verify does not say %s: %v\n%s", try.want, err, out)
			}
		})
	}
}
