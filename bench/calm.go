package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	calmShare  = 0.05                   // of the processors: others use less on a calm machine
	calmSample = 500 * time.Millisecond // over which the share is measured
	// calmLimit is the longest total wait of a round, over all its contenders.
	calmLimit = 2 * time.Minute
)

// processors are the processors' times since boot, in ticks, summed over all processors.
type processors struct{ all, idle, steal float64 }

// readProcessors reads the first line of /proc/stat. It fails on systems without that file.
func readProcessors() (processors, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return processors{}, err
	}
	return parseProcessors(string(text))
}

// parseProcessors reads the fields user, nice, system, idle, iowait, irq, softirq and steal of the
// line "cpu". The guest times that follow are part of user.
func parseProcessors(stat string) (p processors, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return p, fmt.Errorf("the first line of /proc/stat is %q, want the word cpu and 8 numbers", line)
	}
	const idle, iowait, steal = 4, 5, 8
	for i, field := range fields[1:9] {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return p, fmt.Errorf("/proc/stat: %w", err)
		}
		p.all += ticks
		switch i + 1 {
		case idle, iowait:
			p.idle += ticks
		case steal:
			p.steal += ticks
		}
	}
	return p, nil
}

// usedSince returns the share of the processors' time that was busy or stolen by the host since
// before. stolenSince returns the stolen share only.
func (p processors) usedSince(before processors) float64 {
	return share(p.all-p.idle-(before.all-before.idle), p.all-before.all)
}

func (p processors) stolenSince(before processors) float64 {
	return share(p.steal-before.steal, p.all-before.all)
}

func share(part, all float64) float64 {
	if all <= 0 {
		return 0
	}
	return part / all
}

// canCalm returns an error if -calm does not work on this system.
func canCalm() error {
	if _, err := readProcessors(); err != nil {
		return fmt.Errorf("-calm needs /proc/stat, which Linux has, to see what others use: %w", err)
	}
	return nil
}

// errRestless means that a wait for a calm machine timed out.
var errRestless = errors.New("the machine did not become calm")

// awaitCalm waits at most limit until others use less than calmShare of the processors. It measures
// while this program idles, so all usage is by others. That includes the server's work after the
// last measurement.
func awaitCalm(ctx context.Context, limit time.Duration) (waited time.Duration, err error) {
	start := time.Now()
	for {
		before, err := readProcessors()
		if err != nil {
			return time.Since(start), err
		}
		select {
		case <-ctx.Done():
			return time.Since(start), ctx.Err()
		case <-time.After(calmSample):
		}
		after, err := readProcessors()
		switch used := after.usedSince(before); {
		case err != nil:
			return time.Since(start), err
		case used < calmShare:
			return time.Since(start), nil
		case time.Since(start) >= limit:
			return time.Since(start), fmt.Errorf("%w: after %v others use %.0f %% of the processors", errRestless, limit.Round(time.Second), 100*used)
		}
	}
}

// steal returns the median and the largest share of processor time that the host took during a
// round. It returns nil where /proc/stat does not exist.
func (r Report) steal() (middle, largest *float64) {
	if _, err := readProcessors(); err != nil {
		return nil, nil
	}
	var shares []float64
	for _, row := range r.Rows {
		for _, l := range row.Lines {
			for _, round := range l.Rounds {
				shares = append(shares, round.Steal)
			}
		}
	}
	if len(shares) == 0 {
		return nil, nil
	}
	half := median(shares)
	_, most := spread(shares)
	return &half, &most
}

// calmText returns a sentence about how calm the machine was, or "" if the run did not measure it.
func calmText(s Settings) string {
	if s.StealMedian == nil || s.StealLargest == nil {
		return ""
	}
	text := fmt.Sprintf("During the rounds the host took %s of the processors' time in the median and %s at most. The load average was %s before the run and %s after it",
		percent(*s.StealMedian), percent(*s.StealLargest), s.LoadAverage, s.LoadAfter)
	switch {
	case !s.Calm:
		return text + ". The rounds did not wait until other processes were quiet."
	case s.Restless == 0:
		return fmt.Sprintf("Each round began when other processes and the host used less than %s of the processors. %s.", percent(calmShare), text)
	}
	return fmt.Sprintf("A round waited up to %v until other processes and the host used less than %s of the processors, and %s began without that. %s.",
		calmLimit, percent(calmShare), counted(s.Restless, "round"), text)
}

// percent formats a share. Below 10 % it has one decimal if that is not zero.
func percent(share float64) string {
	if share < 0.0995 && share > 0 {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", 100*share), ".0") + " %"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
