package lab

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The page's style sheets, script and mark exist: those of the lab, and those of the dashboard that
// it serves.
func TestPage_ItsFilesExist(t *testing.T) {
	t.Parallel()
	page, err := files.ReadFile("page.html")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?:href|src)="([^"]*assets/[^"]*)"`).FindAllStringSubmatch(string(page), -1)
	if len(all) < 5 {
		t.Fatalf("only %d files: %q", len(all), all)
	}
	for _, m := range all {
		if name, of := strings.CutPrefix(m[1], "dashboard/"); of {
			_, err = os.Stat("../../../../dashboard/" + name)
		} else {
			_, err = files.ReadFile(m[1])
		}
		if err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
	}
}
