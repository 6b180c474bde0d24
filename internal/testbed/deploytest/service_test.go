package deploytest

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The constants of this package agree with the sources of package service.
func TestConstants_AreThoseOfService(t *testing.T) {
	source := func(name string) string {
		text, err := os.ReadFile("../../../service/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for text, file := range map[string]string{
		`"` + envDatabase + `"`: "env.go", `"` + envShutdown + `"`: "env.go", `"` + envDelay + `"`: "env.go", `env("` + envHealth + `")`: "env.go",
		`"GET ` + pathLive + `", a.Live()`: "http.go", `"GET ` + pathReady + `", a.Ready()`: "http.go",
	} {
		if !strings.Contains(source(file), text) {
			t.Errorf("service/%s does not hold %s", file, text)
		}
	}
	for file, says := range map[string]struct {
		of   string
		want time.Duration
	}{
		"health.go": {`\baskLimit += (\d+) \* time\.Second\n`, readyWaits},
		"config.go": {`&c\.ShutdownTimeout, (\d+) \* time\.Second,`, usualStop},
	} {
		found := regexp.MustCompile(says.of).FindStringSubmatch(source(file))
		if found == nil {
			t.Errorf("service/%s does not hold %s", file, says.of)
		} else if got, _ := time.ParseDuration(found[1] + "s"); got != says.want {
			t.Errorf("service/%s says %v, not %v", file, got, says.want)
		}
	}
}
