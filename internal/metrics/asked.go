package metrics

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"mongodlm/internal/clock"
)

// Asked keeps functions that return samples, and the latest samples of each function. The zero
// value is ready. It is safe for concurrent use.
type Asked struct {
	mu   sync.Mutex // guards asks
	asks []*ask
}

type ask struct {
	run   func(context.Context) []Sample
	clock clock.Clock

	mu   sync.Mutex // guards the fields below; held while the function runs
	done bool
	at   time.Duration // monotonic
	last []Sample
}

// Asks keeps the given function until stop is called. It implements the method Asks of [Observer].
func (a *Asked) Asks(run func(context.Context) []Sample) (stop func()) {
	one := &ask{run: run, clock: clock.System()}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asks = append(a.asks, one)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asks = slices.DeleteFunc(a.asks, func(other *ask) bool { return other == one })
	}
}

// All calls the functions that Asks received, in parallel, and returns their samples. The context
// of the functions ends after AskTimeout. Each function is called at most once in AskedEvery.
// Between two calls, its latest samples are returned again. The last argument limits the number of
// names in the labels.
func (a *Asked) All(ctx context.Context, names *Names) []Sample {
	a.mu.Lock()
	asks := slices.Clone(a.asks)
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	answers := make([][]Sample, len(asks))
	var wait sync.WaitGroup
	for i, one := range asks {
		wait.Go(func() { answers[i] = one.answer(ctx) })
	}
	wait.Wait()
	all := slices.Concat(answers...)
	for i := range all {
		all[i].Labels = names.Shown(all[i])
	}
	return largest(all)
}

// largest returns the largest sample of each series. Two queues with one name have one series.
func largest(all []Sample) []Sample {
	series := func(a, b Sample) int {
		return cmp.Or(cmp.Compare(a.Metric.Name, b.Metric.Name), slices.Compare(a.Labels, b.Labels))
	}
	slices.SortFunc(all, func(a, b Sample) int {
		return cmp.Or(series(a, b), cmp.Compare(b.Value, a.Value))
	})
	return slices.CompactFunc(all, func(a, b Sample) bool { return series(a, b) == 0 })
}

func (a *ask) answer(ctx context.Context) []Sample {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { _ = recover() }()
	if now := a.clock.Now().Mono; !a.done || now-a.at >= AskedEvery {
		a.last = nil // after a panic there are no samples
		a.last, a.at, a.done = a.run(ctx), now, true
	}
	return a.last
}

// Names limits the names in labels: the labels show only the first MostNames names. The zero value
// is ready. It is safe for concurrent use.
type Names struct {
	mu   sync.Mutex // guards seen
	seen map[string]bool
}

// Shown returns the label values of s. If the name is not one of the first MostNames names, Shown
// replaces it by "". Shown also replaces invalid UTF-8 in the name.
func (n *Names) Shown(s Sample) []string {
	last := len(s.Labels) - 1
	name := s.Labels[last]
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = map[string]bool{}
	}
	if !n.seen[name] && len(n.seen) == MostNames {
		return append(slices.Clone(s.Labels[:last]), "")
	}
	n.seen[name] = true
	return append(slices.Clone(s.Labels[:last]), strings.ToValidUTF8(name, "?"))
}
