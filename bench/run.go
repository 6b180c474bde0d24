package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// run measures the rows whose id holds one of only, for the contenders whose name holds name, on a server of its own, and reports each round as it ends.
func run(ctx context.Context, s scale, only []string, name string, report func(string)) (r Report, err error) {
	h, err := startHost(ctx, s.name != "tiny")
	if err != nil {
		return r, err
	}
	defer h.stop()
	if r.Settings, err = h.settings(ctx); err != nil {
		return r, err
	}
	r.Settings.Mode, r.Settings.Rounds = s.name, s.rounds
	start := time.Now()
	for _, p := range plans() {
		wanted := slices.ContainsFunc(only, func(part string) bool { return strings.Contains(p.ID, part) })
		if !wanted || p.slow && s.half == 0 {
			continue
		}
		p.entries = slices.DeleteFunc(p.entries, func(e entry) bool { return !strings.Contains(e.Who, name) })
		report("# " + p.Title)
		r.Rows = append(r.Rows, h.row(ctx, p, s, report))
		r.Settings.Seconds = int(time.Since(start).Seconds())
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
	}
	return r, nil
}

// row takes the rounds of a row: A B C, A B C.
func (h *host) row(ctx context.Context, p plan, s scale, report func(string)) Row {
	for _, e := range p.entries {
		p.Lines = append(p.Lines, e.Line)
	}
	rounds := s.rounds
	if p.rounds > 0 {
		rounds = p.rounds
	}
	for n := range rounds {
		for i, r := range h.round(ctx, p, s) {
			p.Lines[i].Rounds = append(p.Lines[i].Rounds, r)
			report(fmt.Sprintf("  %d  %-16s %12.1f %s %s%s", n+1, p.Lines[i].Who, r.Value, p.Unit, r.Said, r.Failed))
		}
	}
	return p.Row
}

func (h *host) round(ctx context.Context, p plan, s scale) []Round {
	rounds := make([]Round, len(p.entries))
	beds := make([]*bed, len(p.entries))
	var all sync.WaitGroup
	for i, e := range p.entries {
		if p.abreast {
			var err error
			if beds[i], err = h.bed(ctx, e.on); err != nil {
				rounds[i].Failed = err.Error()
				continue
			}
			defer beds[i].close(ctx)
			all.Go(func() { rounds[i] = e.on.take(ctx, beds[i], e.measure, s) })
			continue
		}
		b, err := h.bed(ctx, e.on)
		if err != nil {
			rounds[i].Failed = err.Error()
			continue
		}
		rounds[i] = e.on.take(ctx, b, e.measure, s)
		b.close(ctx)
	}
	all.Wait()
	return rounds
}

func (system) take(ctx context.Context, b *bed, m measure, s scale) Round {
	r, err := m(ctx, b, s)
	if err != nil {
		r.Failed = brief(err.Error(), 200)
	}
	r.Said = brief(r.Said, 200)
	return r
}

// brief cuts a text that stands in a table.
func brief(text string, octets int) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > octets {
		return strings.ToValidUTF8(text[:octets], "") + "…"
	}
	return text
}
