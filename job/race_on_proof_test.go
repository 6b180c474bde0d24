//go:build proof && race

package job_test

// raceFactor is the race detector's factor of memory: 5 to 10, by its documentation.
const raceFactor = 10
