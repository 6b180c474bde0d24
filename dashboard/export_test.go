package dashboard

import "github.com/pawl-go/pawl/internal/operator"

// Verbs returns the names of all actions.
func Verbs() (names []string) {
	for _, a := range operator.All() {
		names = append(names, a.Name)
	}
	return names
}

// RoundUp returns the upper end of a chart.
func RoundUp(n int64, ages bool) int64 { return roundUp(n, ages) }
