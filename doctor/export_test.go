package doctor

// Words returns the texts about the facts of each query.
func Words() map[string][]string {
	all := map[string][]string{}
	for _, q := range questions {
		for _, w := range q.words {
			all[q.query] = append(all[q.query], w.what, w.fix)
		}
	}
	return all
}

// HintAt returns the findings about the keys of one scope.
var HintAt = hintAt
