package dashboard

// Verbs are the names of all actions.
func Verbs() (names []string) {
	for _, a := range actions {
		names = append(names, a.name)
	}
	return names
}
