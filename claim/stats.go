package claim

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"mongodlm/internal/metrics"
	"mongodlm/internal/rows"
)

// A stats tells the Observer of the Manager what becomes of rows, and answers when that asks how
// many there are: the process that rescues the rows of the dead, so one of the queue, by six
// commands (seven with Config.Due), and one more a minute for the server's clock.
type stats struct {
	e       *engine
	to      metrics.Observer
	name    []string // the label
	rescues atomic.Bool
	stop    func()
}

// mostCounted is how many rows of a state are counted for metrics.
const mostCounted = 10_000

func (e *engine) observed() *stats {
	name := []string{strings.TrimPrefix(e.prefix, prefix)}
	s := &stats{e: e, to: metrics.Of(e.m.Config().Observer), name: name}
	s.to.Sampled(metrics.Zeros(s.name, metrics.Attempts)...)
	s.stop = s.to.Asks(s.answer)
	return s
}

func (s *stats) sample(m *metrics.Metric, value float64, before ...string) metrics.Sample {
	return metrics.Sample{Metric: m, Labels: append(before, s.name...), Value: value}
}

// handled is told how long a handler ran; zero if it did not.
func (s *stats) handled(took time.Duration) {
	if took > 0 {
		s.to.Sampled(s.sample(metrics.HandlerTime, took.Seconds()))
	}
}

// ended is told that a claim is over.
func (s *stats) ended(end rows.Ending, err error) {
	outcome := string(end.To)
	switch {
	case errors.Is(err, ErrLost):
		outcome = "lost"
	case err != nil:
		return // it goes on
	case end.To == rows.Ready || end.Uncounted:
		outcome = "given_back"
	}
	s.to.Sampled(s.sample(metrics.Attempts, 1, outcome))
}

// answer is how the rows stand. Of those that are claimed it knows its own.
func (s *stats) answer(ctx context.Context) []metrics.Sample {
	all := []metrics.Sample{s.sample(metrics.Oldest, s.e.oldest().Seconds(), "claimed")}
	if !s.rescues.Load() {
		return all
	}
	now, err := s.e.serverNow(ctx)
	if err != nil {
		return all
	}
	d, err := s.e.store.Depth(ctx, now, mostCounted)
	if err != nil {
		return all
	}
	for state, n := range map[string]int64{"ready": d.Counts.Ready, "claimed": d.Counts.Claimed,
		"retrying": d.Counts.Retrying, "dead": d.Counts.Dead, "later": d.Counts.Later} {
		all = append(all, s.sample(metrics.Rows, float64(n), state))
	}
	age := func(since time.Time) time.Duration {
		if since.IsZero() {
			return 0
		}
		return max(now.Sub(since), 0)
	}
	late := age(d.Retry)
	if s.e.cfg.Due != "" {
		late = max(late, age(d.Since))
	}
	return append(all, s.sample(metrics.Oldest, age(d.Since).Seconds(), "ready"),
		s.sample(metrics.Oldest, late.Seconds(), "late"))
}

// oldest is for how long the oldest row has been claimed that this process has; zero when it has
// none.
func (e *engine) oldest() (age time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now().Mono
	for c := range e.flying {
		age = max(age, now-c.since)
	}
	return age
}
