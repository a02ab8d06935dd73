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
// of names. The weights of the default order come from the method ranks.
var orders = []struct {
	name string
	of   func(row) time.Duration
}{
	{"trouble", nil},
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

type lockRank struct {
	holders, queue []distlock.LockInfo
	trouble        int           // see [words.Trouble]
	weight         time.Duration // by the requested order
}

func (v *filter) ranks(l *listing) map[string]*lockRank {
	all := map[string]*lockRank{}
	of := func(name string) *lockRank {
		if all[name] == nil {
			all[name] = &lockRank{}
		}
		return all[name]
	}
	for _, w := range l.Queue.Waiters {
		s := of(w.Name)
		s.queue = append(s.queue, w.info)
	}
	for _, r := range l.Locks {
		s := of(r.Name)
		s.holders = append(s.holders, r.info)
		for _, o := range orders[1:] {
			if o.name == v.order {
				s.weight = max(s.weight, o.of(r))
			}
		}
	}
	for _, s := range all {
		if len(s.holders) > 0 { // otherwise the lock is not listed
			s.trouble = words.Trouble(s.holders, s.queue)
		}
		if s.trouble > 0 && v.order == orders[0].name { // every queue is shorter than 1<<40
			s.weight = time.Duration(s.trouble)<<40 + time.Duration(len(s.queue))
		}
	}
	return all
}

// apply sorts a listing, and removes the locks that the filter does not select.
func (v *filter) apply(l *listing) {
	all, whole := v.ranks(l), l.count()
	drop := func(name string) bool {
		return v.waited && len(all[name].queue) == 0 || v.silent && all[name].trouble < 2
	}
	heavier := func(a, b string) int { return cmp.Compare(all[b].weight, all[a].weight) }
	l.Locks = slices.DeleteFunc(slices.Clone(l.Locks), func(r row) bool { return drop(r.Name) })
	l.Queue.Waiters = slices.DeleteFunc(slices.Clone(l.Queue.Waiters),
		func(w waiterRow) bool { return drop(w.Name) })
	for name, s := range all {
		if s.trouble > 0 && !drop(name) {
			l.troubled++
		}
	}
	l.troubleFirst = v.order == orders[0].name
	slices.SortStableFunc(l.Locks, func(a, b row) int { return heavier(a.Name, b.Name) })
	slices.SortStableFunc(l.Queue.Waiters, func(a, b waiterRow) int { return heavier(a.Name, b.Name) })
	if len(l.Locks) == 0 && whole > 0 {
		l.empty = fmt.Sprintf("none of %d locks matches", whole)
	}
}
