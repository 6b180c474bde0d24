//go:build proof

package brokers

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// wantLoopback fails the test if a process of the broker listens on an address that other machines
// can reach. The brokers check no password, so that would open them to the network.
func wantLoopback(t *testing.T, s *Server) {
	t.Helper()
	at := listening(t, members(t, s.cmd.Process.Pid))
	if !slices.ContainsFunc(at, func(a netip.AddrPort) bool { return int(a.Port()) == s.port }) {
		t.Errorf("it listens at %v, not at its port %d", at, s.port)
	}
	for _, a := range at {
		if !a.Addr().IsLoopback() {
			t.Errorf("it listens at %v, which is not loopback", a)
		}
	}
}

// listening returns the TCP addresses at which processes listen, from /proc.
func listening(t *testing.T, pids map[int]string) (at []netip.AddrPort) {
	t.Helper()
	ours := map[string]bool{} // links of /proc/PID/fd
	for pid := range pids {
		files, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*"))
		for _, f := range files {
			if to, err := os.Readlink(f); err == nil {
				ours[to] = true
			}
		}
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil && !os.IsNotExist(err) { // without IPv6
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			const listens = "0A"
			if f := strings.Fields(line); len(f) > 9 && f[3] == listens && ours["socket:["+f[9]+"]"] {
				at = append(at, addressOf(t, f[1]))
			}
		}
	}
	return at
}

// addressOf reads an address such as 0100007F:1F90. Each group of four octets is in the order of
// the machine.
func addressOf(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	octets, err := hex.DecodeString(host)
	n, bad := strconv.ParseUint(port, 16, 16)
	if err != nil || bad != nil {
		t.Fatalf("%q is no address of /proc/net/tcp", text)
	}
	for i := 0; i+4 <= len(octets); i += 4 {
		binary.BigEndian.PutUint32(octets[i:], binary.NativeEndian.Uint32(octets[i:]))
	}
	addr, _ := netip.AddrFromSlice(octets)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n))
}

// An address that other machines can reach is recognised, in both families.
func TestAddressOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"0100007F:1F90": "127.0.0.1:8080", "00000000:1F90": "0.0.0.0:8080", "00000000000000000000000001000000:0050": "[::1]:80",
		"00000000000000000000000000000000:0050": "[::]:80", "0000000000000000FFFF00000100007F:0050": "127.0.0.1:80"} {
		if got := addressOf(t, text).String(); got != want && binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}
