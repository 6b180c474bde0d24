//go:build unix && !linux

package postgres

func ramDir() (string, bool) { return "", false }
