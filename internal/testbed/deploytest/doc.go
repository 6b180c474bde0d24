// Package deploytest checks the files of the directory deploy: that those who read them (Kubernetes, BuildKit, systemd) take every line, and
// that what they say of one thing agrees. It is a module of its own so that nothing else needs the libraries of those.
package deploytest
