package dashboard

// Verbs are the names of all actions.
func Verbs() (names []string) {
	for _, a := range actions {
		names = append(names, a.name)
	}
	return names
}

// RoundUp is the upper end of a chart.
func RoundUp(n int64, ages bool) int64 { return roundUp(n, ages) }
