//go:build !race

package job_test

const raceFactor = 1
