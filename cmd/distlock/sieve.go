package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"mongodlm/cmd/internal/words"
)

// A sieve selects and sorts the locks of a listing, like the page.
type sieve struct {
	waited, silent bool
	part           string // part of the name; empty matches all names
	order          string
}

// orders are the sort orders. The first is the default. The function "of" returns the weight of a
// row. Heavier locks come first. Locks with the same weight are sorted by name.
var orders = []struct {
	name string
	of   func(row) int64
}{
	{"trouble", func(row) int64 { return 0 }}, // the function troubles computes these weights
	{"name", func(row) int64 { return 0 }},
	{"held", func(r row) int64 { return milli(r.HeldForMS) }},
	{"ping", func(r row) int64 { return milli(r.PingAgeMS) }},
	{"queue", func(r row) int64 { return int64(r.Waiters) }},
}

// milli returns a number of milliseconds, or -1 when unknown.
func milli(ms *int64) int64 {
	if ms == nil {
		return -1
	}
	return *ms
}

func (v *sieve) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.waited, "waited", false, "only locks with waiters")
	f.BoolVar(&v.silent, "silent", false, "only locks with a holder that is silent or declared "+
		"dead, whose ping\nis missing or cannot be understood, or whose lease ran out")
	f.StringVar(&v.order, "sort", orders[0].name, "the `order`: trouble (dead holders, then long "+
		"queues, each by\nwaiters, then the rest by name), name, held, ping or queue")
}

func (v *sieve) accept() error {
	names := make([]string, len(orders))
	for i, o := range orders {
		if names[i] = o.name; o.name == v.order {
			return nil
		}
	}
	return fmt.Errorf("--sort is %q, must be one of %s", v.order, strings.Join(names, ", "))
}

// queueing returns, for each lock with waiters, how many of them wait for their turn.
func queueing(l listing) map[string]int {
	turns := map[string]int{}
	for _, w := range l.Line.Waiters {
		if _, known := turns[w.Name]; !known {
			turns[w.Name] = 0
		}
		if !w.standsBy {
			turns[w.Name]++
		}
	}
	return turns
}

// troubles returns the weights of the locks in trouble (see [words.Trouble]). If two locks have the
// same trouble, the one with more waiters is heavier.
func troubles(l listing, turns map[string]int) map[string]int64 {
	trouble := map[string]int64{}
	for _, r := range l.Locks {
		if r.suspect {
			trouble[r.Name] = silentWeight + int64(r.Waiters)
		} else if n := turns[r.Name]; n >= words.LongQueue {
			trouble[r.Name] = max(trouble[r.Name], int64(n))
		}
	}
	return trouble
}

// silentWeight is the minimum weight of a lock with a suspect holder. It exceeds the length of
// every queue.
const silentWeight = 1 << 40

// pick returns the names of the selected locks, with their weights.
func (v *sieve) pick(l listing) map[string]int64 {
	turns := queueing(l)
	trouble := troubles(l, turns)
	weight := func(row) int64 { return 0 }
	for _, o := range orders {
		if o.name == v.order {
			weight = o.of
		}
	}
	picked := map[string]int64{}
	for name := range turns { // includes locks without a holder
		if !v.silent && strings.Contains(name, v.part) {
			picked[name] = 0
		}
	}
	for _, r := range l.Locks {
		_, waited := turns[r.Name]
		if v.waited && !waited || v.silent && trouble[r.Name] < silentWeight || !strings.Contains(r.Name, v.part) {
			continue
		}
		picked[r.Name] = max(picked[r.Name], weight(r))
		if v.order == orders[0].name {
			picked[r.Name] = trouble[r.Name]
		}
	}
	return picked
}

// sift reduces a listing to the selected locks, sorted.
func (v *sieve) sift(l *listing) {
	picked := v.pick(*l)
	not := func(name string) bool { _, is := picked[name]; return !is }
	heavier := func(a, b string) int { return cmp.Compare(picked[b], picked[a]) }
	whole := l.count()
	l.Locks = slices.DeleteFunc(slices.Clone(l.Locks), func(r row) bool { return not(r.Name) })
	l.Line.Waiters = slices.DeleteFunc(slices.Clone(l.Line.Waiters),
		func(w waiterRow) bool { return not(w.Name) })
	for _, r := range troubles(*l, queueing(*l)) {
		if r > 0 {
			l.troubled++
		}
	}
	l.troubleFirst = v.order == orders[0].name
	slices.SortStableFunc(l.Locks, func(a, b row) int { return heavier(a.Name, b.Name) })
	slices.SortStableFunc(l.Line.Waiters, func(a, b waiterRow) int { return heavier(a.Name, b.Name) })
	if len(l.Locks) == 0 && whole > 0 {
		l.void = fmt.Sprintf("none of %d locks matches", whole)
	}
}
