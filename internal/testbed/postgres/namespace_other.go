//go:build unix && !linux

package postgres

import "syscall"

const namespaces = false

func mapToNobody(*syscall.SysProcAttr) {}
