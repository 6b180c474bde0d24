package transporttest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// A destination in memory, with a sink that can be broken. It answers each message by its number on
// the connection, or a whole call at once.

func TestMemorySink(t *testing.T)         { transporttest.RunSink(t, memorySink("", false)) }
func TestMemorySink_Batches(t *testing.T) { transporttest.RunSink(t, memorySink("", true)) }

func TestSinkSuite_NoticesEachMutant(t *testing.T) {
	t.Parallel()
	for mutant, noticed := range map[string]string{
		"sink: answers by order":                  "ResponsesBelongToTheirMessages",
		"sink: off by one":                        "ResponsesBelongToTheirMessages",
		"sink: one answer is for all before it":   "ResponsesBelongToTheirMessages",
		"sink: silence is consent":                "SilenceIsNoConfirmation",
		"sink: leaves an answer behind":           "SilenceIsNoConfirmation",
		"sink: published when it was sent":        "ContextEndsAtAnyPoint",
		"sink: numbers each call anew":            "LateResponsesAreOfTheirCall",
		"sink: mixes calls":                       "CallsDoNotMix",
		"sink: the end of a call ends the others": "OneCallEndsNoOther",
		"sink: a cut is consent":                  "ConnectionEndsInTheMiddle",
		"batch: what is not mentioned is sent":    "ResponsesForSomeOnly",
		"batch: off by one":                       "ResponsesBelongToTheirMessages",
		"sink: counts what was accepted":          "BatchIsAPrefix",
	} {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			if failed := failures(t, mutant, "/^"+noticed+"$"); !slices.Contains(failed, noticed) {
				t.Errorf("%s lets it pass", noticed)
			}
		})
	}
}

func memorySink(broken string, batches bool) transporttest.Destination {
	return transporttest.Destination{Named: true, Open: func(_ *testing.T, a *transporttest.Responses) transporttest.Outlet {
		s := &sink{mutant: broken, batches: batches, answers: a, link: newLink()}
		return transporttest.Outlet{Sink: s, Cut: s.cutLink, Refused: func(m pawl.Message) pawl.Message {
			m.Type = "refused"
			return m
		}}
	}}
}

// A sink pipelines messages over a link.
type sink struct {
	mutant  string
	batches bool
	answers *transporttest.Responses

	mu   sync.Mutex
	link *link
}

// A link is a connection. It numbers messages and their answers.
type link struct {
	cut     chan struct{}
	mu      sync.Mutex
	last    int
	waits   map[int]*wait
	inOrder []*wait         // for mutants that match answers by order
	byPlace map[int][]*wait // by their places in their calls
}

// A wait is a message without an answer.
type wait struct {
	number int
	answer chan error
}

func (s *sink) broken(what string) bool {
	return s.mutant == "sink: "+what || s.mutant == "batch: "+what
}

func (s *sink) cutLink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.link.cut)
	s.link = newLink()
}

func newLink() *link {
	return &link{cut: make(chan struct{}), waits: map[int]*wait{}, byPlace: map[int][]*wait{}}
}

var errNoResponse = errors.New("there was no response")

func (s *sink) Publish(ctx context.Context, ms []pawl.Message) []error {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if s.batches {
		return s.publishBatch(ctx, l, ms)
	}
	sent := make(chan *wait, len(ms))
	for i, m := range ms {
		sent <- s.post(l, i, m)
	}
	errs := make([]error, len(ms))
	if s.broken("leaves an answer behind") {
		for i := range ms {
			select {
			case w := <-sent:
				errs[i] = s.await(ctx, l, w)
			case <-ctx.Done():
				errs[i] = errNoResponse
			}
		}
		return errs
	}
	for i := range ms {
		errs[i] = s.await(ctx, l, <-sent)
	}
	if s.broken("off by one") {
		errs = append(errs[1:], errs[0])
	}
	return errs
}

// post sends one message. The destination confirms or refuses it by number.
func (s *sink) post(l *link, place int, m pawl.Message) *wait {
	w := &wait{answer: make(chan error, 1)}
	l.mu.Lock()
	l.last++
	w.number = l.last
	if s.broken("numbers each call anew") {
		w.number = place
	}
	l.waits[w.number] = w
	l.byPlace[place] = append(l.byPlace[place], w)
	l.inOrder = append(l.inOrder, w)
	l.mu.Unlock()
	s.answers.Arrived()
	confirmed, err := []string{m.ID}, error(nil)
	if m.Type == "refused" {
		confirmed, err = nil, fmt.Errorf("%s is refused", m.ID)
	}
	s.answers.Send([]string{m.ID}, confirmed, func() { s.answered(l, w.number, place, err) })
	return w
}

// answered passes an answer to the message with that number.
func (s *sink) answered(l *link, number, place int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waits[number]
	switch {
	case s.broken("answers by order"):
		w, l.inOrder = l.inOrder[0], l.inOrder[1:]
	case s.broken("mixes calls"): // takes the newest call that has a message there
		last := len(l.byPlace[place]) - 1
		w, l.byPlace[place] = l.byPlace[place][last], l.byPlace[place][:last]
	}
	if w != nil {
		give(w, err)
	}
	if s.broken("one answer is for all before it") && err == nil {
		for n, other := range l.waits {
			if n < number {
				give(other, nil)
			}
		}
	}
}

func give(w *wait, err error) {
	select {
	case w.answer <- err:
	default:
	}
}

func (s *sink) await(ctx context.Context, l *link, w *wait) error {
	if s.broken("published when it was sent") && ctx.Err() != nil {
		return nil
	}
	select {
	case err := <-w.answer:
		return err
	case <-l.cut:
		if s.broken("a cut is consent") {
			return nil
		}
	case <-ctx.Done():
		if s.broken("the end of a call ends the others") {
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, other := range l.waits {
				give(other, nil)
			}
		}
		if s.broken("silence is consent") {
			return nil
		}
	}
	return errNoResponse
}

// publishBatch sends a call in one request, which has one answer.
func (s *sink) publishBatch(ctx context.Context, l *link, ms []pawl.Message) []error {
	said, answered := map[string]error{}, make(chan struct{})
	var ids, confirmed []string
	for _, m := range ms {
		s.answers.Arrived()
		ids = append(ids, m.ID)
		switch {
		case s.answers.Omits(m.ID):
		case m.Type == "refused":
			said[m.ID] = fmt.Errorf("%s is refused", m.ID)
		default:
			said[m.ID], confirmed = nil, append(confirmed, m.ID)
		}
	}
	s.answers.Send(ids, confirmed, func() { close(answered) })
	errs := make([]error, len(ms))
	select {
	case <-answered:
	case <-l.cut:
		said = map[string]error{}
	case <-ctx.Done():
		said = map[string]error{}
	}
	for i, m := range ms {
		err, mentioned := said[m.ID]
		if errs[i] = err; !mentioned && !s.broken("what is not mentioned is sent") {
			errs[i] = errNoResponse
		}
	}
	if s.broken("off by one") {
		errs = append(errs[1:], errs[0])
	}
	return errs
}

func (s *sink) PublishBatch(ctx context.Context, ms []pawl.Message) (accepted int, err error) {
	for _, m := range ms {
		if errs := s.Publish(ctx, []pawl.Message{m}); errs[0] != nil {
			if err = errs[0]; s.broken("counts what was accepted") {
				continue
			}
			return accepted, err
		}
		accepted++
	}
	return accepted, err
}
