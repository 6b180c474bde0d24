//go:build proof

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// labState is the state that the crash lab serves.
type labState struct {
	Sent  int
	Camps []struct {
		Name                                    string
		Delivered, Effects, Doubled, Lost, Open int
		Workers                                 []struct{ State string }
		Takeovers                               []struct {
			Key          string
			Fence, Newer int64
			Late         string
		}
	}
	Presses []struct {
		Text, Failed string
		Traces       []struct {
			Camp, Key, Verdict string
			Lines              []struct{ Text string }
		}
	}
}

// Each fault of the crash lab hits both camps and is reported, and Pawl's orders take effect once,
// beside each way by hand. Another browser and another site cannot press a button.
func TestLab_EachFault(t *testing.T) {
	t.Parallel()
	cmd := command(t, "", "demo", "--watch", "--workers", "2", "--listen", "127.0.0.1:0", "--json")
	var running struct{ URL, Login string }
	served := serve(t, cmd, &running)
	browser := newBrowser(t)
	get := func(address string) (int, string) {
		t.Helper()
		return browse(t, browser, http.MethodGet, address, nil)
	}
	press := func(client *http.Client, site, fault, worker string) (int, string) {
		t.Helper()
		return browse(t, client, http.MethodPost, running.URL+"press", url.Values{"fault": {fault}, "worker": {worker}}, "Accept", "application/json", "Sec-Fetch-Site", site)
	}
	if status, body := get(running.Login); status != http.StatusOK || !strings.Contains(body, "Crash lab") {
		t.Fatalf("%d %s", status, body)
	}
	wantNoDatabasePort(t, cmd.Process.Pid)
	if status, _ := press(&http.Client{}, "same-origin", "kill", "1"); status != http.StatusUnauthorized {
		t.Errorf("another browser: %d", status)
	}
	if status, _ := press(browser, "cross-site", "kill", "1"); status != http.StatusForbidden {
		t.Errorf("another site: %d", status)
	}
	stand := func(site, way string) (int, string) {
		t.Helper()
		return browse(t, browser, http.MethodPost, running.URL+"beside", url.Values{"way": {way}}, "Accept", "application/json", "Sec-Fetch-Site", site)
	}
	if status, _ := stand("cross-site", "lease"); status != http.StatusForbidden {
		t.Errorf("another site chooses a way: %d", status)
	}
	for _, bad := range []string{"", "pawl", "by-hand"} {
		if status, _ := stand("same-origin", bad); status != http.StatusBadRequest {
			t.Errorf("way %q: %d", bad, status)
		}
	}
	for _, bad := range [][2]string{{"explode", "1"}, {"kill", "3"}, {"kill", "-1"}, {"kill", "x"}, {"", ""}} {
		if status, _ := press(browser, "same-origin", bad[0], bad[1]); status != http.StatusBadRequest {
			t.Errorf("%q: %d", bad, status)
		}
	}
	state := func() (s labState) {
		t.Helper()
		_, body := get(running.URL + "state")
		if err := json.Unmarshal([]byte(body), &s); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		return s
	}
	working := func(what string) {
		t.Helper()
		before := state()
		eventually(t, "both camps work "+what, func() bool {
			now := state()
			return now.Camps[0].Effects > before.Camps[0].Effects+5 && now.Camps[1].Effects > before.Camps[1].Effects+5
		})
	}
	working("at first")
	for _, fault := range []string{"kill", "freeze", "wake", "cut", "restart", "duplicates", "lose-acks", "kill"} {
		if status, body := press(browser, "same-origin", fault, "1"); status != http.StatusNoContent {
			t.Errorf("%s: %d %s", fault, status, body)
		}
		if fault == "freeze" {
			eventually(t, "worker 1 is frozen", func() bool { return state().Camps[0].Workers[0].State == "frozen" })
			time.Sleep(4 * time.Second) // past its lease and the visibility of its messages
			continue
		}
		working("after " + fault)
	}
	for _, way := range []string{"select-then-act", "single-update", "two-phase", "setnx-before", "setnx-after", "lease", "insert-first"} {
		if status, body := stand("same-origin", way); status != http.StatusNoContent {
			t.Errorf("%s: %d %s", way, status, body)
		}
		eventually(t, way+" stands beside Pawl", func() bool { return state().Camps[1].Name == way })
		working("beside " + way)
	}
	told := 0
	for _, p := range state().Presses {
		if p.Failed != "" {
			t.Errorf("%s: %s", p.Text, p.Failed)
		}
		for _, trace := range p.Traces {
			told += len(trace.Lines)
		}
	}
	if told < 10 {
		t.Errorf("only %d lines tell what happened", told)
	}
	if status, body := get(running.URL + "dashboard/"); status != http.StatusOK || !strings.Contains(body, "Overview") {
		t.Errorf("the dashboard beside it: %d", status)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var report struct {
		Sent   int
		Pawl   struct{ Effects, Doubled, Lost int }
		Beside []struct {
			Way                   string
			Orders, Effects, Lost int
		}
	}
	text, _ := io.ReadAll(served.stdout)
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatalf("%v: %s %s", err, text, served.stderr)
	}
	if report.Pawl.Doubled+report.Pawl.Lost != 0 || report.Pawl.Effects != report.Sent {
		t.Errorf("%+v", report)
	}
	if len(report.Beside) != 7 {
		t.Errorf("not all ways have stood: %+v", report.Beside)
	}
	for _, b := range report.Beside {
		if b.Orders == 0 || b.Effects == 0 {
			t.Errorf("%+v", b)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, served.stderr)
	}
}
