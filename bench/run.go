package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// run measures the chosen rows and contenders (see choose) on a private server, and reports each
// round as it ends.
func run(ctx context.Context, plans []plan, s scale, only []string, name string, report func(string)) (r Report, err error) {
	if plans, err = choose(plans, s, only, name); err != nil {
		return r, err
	}
	h, err := startHost(ctx, s.name != "tiny")
	if err != nil {
		return r, err
	}
	defer h.stop()
	if r.Settings, err = h.settings(ctx); err != nil {
		return r, err
	}
	r.Settings.Mode, r.Settings.Rounds, r.Settings.Calm = s.name, s.rounds, s.calm > 0
	start := time.Now()
	h.report = report
	for _, p := range plans {
		report("# " + p.Title)
		r.Rows = append(r.Rows, h.row(ctx, p, s))
		r.Settings.Seconds, r.Settings.LoadAfter, r.Settings.Restless = int(time.Since(start).Seconds()), loadAverage(), h.restless
		r.Settings.StealMedian, r.Settings.StealLargest = r.steal()
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
	}
	return r, nil
}

// row measures the rounds of a row: A B C, A B C.
func (h *host) row(ctx context.Context, p plan, s scale) Row {
	for _, e := range p.entries {
		p.Lines = append(p.Lines, e.Line)
	}
	rounds := s.rounds * max(1, p.many)
	if p.rounds > 0 {
		rounds = min(rounds, p.rounds)
	}
	for n := range rounds {
		for i, r := range h.round(ctx, p, s) {
			p.Lines[i].Rounds = append(p.Lines[i].Rounds, r)
			h.report(fmt.Sprintf("  %d  %-16s %12.1f %s %s%s", n+1, p.Lines[i].Who, r.Value, p.Unit, r.Said, r.Failed))
		}
	}
	return p.Row
}

func (h *host) round(ctx context.Context, p plan, s scale) []Round {
	rounds := make([]Round, len(p.entries))
	beds := make([]*bed, len(p.entries))
	left := s.calm
	var all sync.WaitGroup
	for i, e := range p.entries {
		if i == 0 || !p.abreast {
			h.becomeCalm(ctx, &left)
		}
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

// becomeCalm waits until others are quiet, at most for the rest of the round's budget. A round
// without budget proceeds and is counted.
func (h *host) becomeCalm(ctx context.Context, left *time.Duration) {
	if *left <= 0 {
		return
	}
	waited, err := awaitCalm(ctx, *left)
	*left -= waited
	if err != nil && ctx.Err() == nil {
		*left = 0
		h.restless++
		h.report("  goes on: " + err.Error())
	}
}

func (system) take(ctx context.Context, b *bed, m measure, s scale) Round {
	before, _ := readProcessors()
	r, err := m(ctx, b, s)
	after, _ := readProcessors()
	r.Steal = after.stolenSince(before)
	if err != nil {
		r.Failed = brief(err.Error(), 200)
	}
	r.Said = brief(r.Said, 200)
	return r
}

// brief shortens a text for a table.
func brief(text string, octets int) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > octets {
		return strings.ToValidUTF8(text[:octets], "") + "…"
	}
	return text
}
