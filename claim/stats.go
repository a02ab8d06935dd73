package claim

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"mongodlm/internal/metrics"
)

// stats reports to the Observer of the Manager. In the one process of the queue that rescues rows,
// it also counts the rows when the Observer asks, with at most ten commands.
type stats struct {
	e       *engine
	to      metrics.Observer
	name    []string // the label
	rescues atomic.Bool
	stop    func()
}

// mostCounted is the most rows of a state that are counted for metrics.
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

// handled reports how long a handler ran.
func (s *stats) handled(took time.Duration) {
	s.to.Sampled(s.sample(metrics.HandlerTime, took.Seconds()))
}

// ended counts the outcome of a claim.
func (s *stats) ended(outcome string) {
	s.to.Sampled(s.sample(metrics.Attempts, 1, outcome))
}

// stuck reports the number of handlers that do not return.
func (s *stats) stuck(n int) { s.to.Sampled(s.sample(metrics.Stuck, float64(n))) }

// answer returns the samples for a request of the Observer.
func (s *stats) answer(ctx context.Context) []metrics.Sample {
	all := []metrics.Sample{s.sample(metrics.Oldest, s.e.oldest().Seconds(), "claimed")}
	if !s.rescues.Load() {
		return all
	}
	now, err := s.e.serverNow()
	if err != nil {
		return all
	}
	d, err := s.e.store.Count(ctx, mostCounted)
	if err != nil {
		return all
	}
	for state, n := range map[string]int64{"ready": d.Ready, "claimed": d.Claimed,
		"retrying": d.Retrying, "dead": d.Dead, "later": d.Later, "odd": d.Odd} {
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
