package dashboard

import "github.com/pawl-go/pawl/internal/operator"

// Verbs are the names of all actions.
func Verbs() (names []string) {
	for _, a := range operator.All() {
		names = append(names, a.Name)
	}
	return names
}

// RoundUp is the upper end of a chart.
func RoundUp(n int64, ages bool) int64 { return roundUp(n, ages) }
