//go:build proof && race

package job_test

// raceFactor is how much more memory the race detector may use. Its documentation says 5 to 10
// times.
const raceFactor = 10
