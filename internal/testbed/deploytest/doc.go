// Package deploytest checks the files of the directory deploy: Kubernetes, BuildKit and systemd
// must accept every line, and the files must agree with each other. It is a separate module so that
// no other module needs those libraries.
package deploytest
