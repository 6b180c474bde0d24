// Package browsertest drives the dashboard in a real Chromium: it cures a bad morning through the pages alone, attacks them, checks them with axe, and
// takes their pictures for the documentation.
//
// Its tests need the build tag proof, Chromium (Debian: apt-get install chromium) and axe (npm ci --prefix internal/testbed/browsertest):
//
//	go test -tags proof ./internal/testbed/browsertest
package browsertest
