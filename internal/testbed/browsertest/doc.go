// Package browsertest drives the dashboard in a real Chromium. It resolves an incident through the
// pages alone, attacks the pages, checks them with axe, and takes the documentation's screenshots.
// Its tests TestSite do the same for the documentation site, which make site builds before.
//
// The tests need the build tag proof, Chromium (Debian: apt-get install chromium) and axe (npm ci
// --prefix internal/testbed/browsertest):
//
//	go test -tags proof ./internal/testbed/browsertest
package browsertest
