package checker

// A Step is one effect of a line, which is a sequence of ordered effects.
type Step struct {
	Line   string
	Number int
}

// OutOfOrder returns the effects that came after an effect of their line with a higher number. The
// steps are in the order in which they took effect. Judge finds doubled effects.
func OutOfOrder(steps []Step) (late []Step) {
	highest := map[string]int{}
	for _, s := range steps {
		if h, known := highest[s.Line]; known && s.Number < h {
			late = append(late, s)
			continue
		}
		highest[s.Line] = s.Number
	}
	return late
}
