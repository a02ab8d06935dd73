package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

// A filter selects and sorts the locks of a listing. The web page has the same filters and orders.
type filter struct {
	waited, silent bool
	order          string
}

// orders are the sort orders, the default first. Each order has a function that returns the weight
// of a row. Locks with a higher weight come first, and locks with the same weight are in the order
// of names. In the default order, the method apply sets the weights of locks in trouble.
var orders = []struct {
	name string
	of   func(row) time.Duration
}{
	{"trouble", func(row) time.Duration { return 0 }},
	{"name", func(row) time.Duration { return 0 }},
	{"held", func(r row) time.Duration { return duration(r.HeldForMS) }},
	{"ping", func(r row) time.Duration { return duration(r.PingAgeMS) }},
	{"queue", func(r row) time.Duration { return time.Duration(r.Waiters) }},
}

func (v *filter) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.waited, "waited", false, "only locks with waiters")
	f.BoolVar(&v.silent, "silent", false, "only locks with a holder that is silent or declared "+
		"dead, whose ping\nis missing or cannot be understood, or whose lease ran out")
	f.StringVar(&v.order, "sort", orders[0].name, "the `order`: trouble (dead holders, then long "+
		"queues, each by\nwaiters, then the rest by name), name, held, ping or queue")
}

func (v *filter) accept() error {
	names := make([]string, len(orders))
	for i, o := range orders {
		if names[i] = o.name; o.name == v.order {
			return nil
		}
	}
	return fmt.Errorf("--sort is %q, must be one of %s", v.order, strings.Join(names, ", "))
}

// apply sorts a listing, and removes the locks that the filter does not select.
func (v *filter) apply(l *listing) {
	holders, queues := map[string][]distlock.LockInfo{}, map[string][]distlock.LockInfo{}
	weights, trouble := map[string]time.Duration{}, map[string]int{} // see [words.Trouble]
	whole := l.count()
	for _, w := range l.Queue.Waiters {
		queues[w.Name] = append(queues[w.Name], w.info)
	}
	for _, r := range l.Locks {
		holders[r.Name] = append(holders[r.Name], r.info)
		for _, o := range orders {
			if o.name == v.order {
				weights[r.Name] = max(weights[r.Name], o.of(r))
			}
		}
	}
	drop := func(name string) bool {
		return v.waited && len(queues[name]) == 0 || v.silent && trouble[name] < 2
	}
	l.troubleFirst = v.order == orders[0].name
	for name, infos := range holders {
		trouble[name] = words.Trouble(infos, queues[name])
		if trouble[name] > 0 && l.troubleFirst { // every queue is shorter than 1<<40
			weights[name] = time.Duration(trouble[name])<<40 + time.Duration(len(queues[name]))
		}
		if trouble[name] > 0 && !drop(name) {
			l.troubled++
		}
	}
	heavier := func(a, b string) int { return cmp.Compare(weights[b], weights[a]) }
	l.Locks = slices.DeleteFunc(slices.Clone(l.Locks), func(r row) bool { return drop(r.Name) })
	l.Queue.Waiters = slices.DeleteFunc(slices.Clone(l.Queue.Waiters),
		func(w waiterRow) bool { return drop(w.Name) })
	slices.SortStableFunc(l.Locks, func(a, b row) int { return heavier(a.Name, b.Name) })
	slices.SortStableFunc(l.Queue.Waiters, func(a, b waiterRow) int { return heavier(a.Name, b.Name) })
	if len(l.Locks) == 0 && whole > 0 {
		l.empty = fmt.Sprintf("none of %d locks matches", whole)
	}
}
