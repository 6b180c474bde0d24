//go:build proof && !race

package job_test

const raceFactor = 1
