package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// This file reads what those wait for who may be in a circle, and only that: the locks that they
// wait for, what the holders of those wait for, and so on.

// readSteps is how often a reading goes on from holders to what they wait for, readFor about how
// long it does so. If there is more it reads all locks that anybody waits for instead, in one
// command.
const (
	readSteps = 5
	readFor   = time.Second
)

// An outsider waits outside of the document of a lock.
type outsider struct {
	catalog.Participant
	number int64 // of the note that tells of it; 0 if it is of this process
	alone  bool  // no note tells of it
	silent bool
}

// A reading collects the locks of one.
type reading struct {
	q     *Queue
	own   string
	rows  map[string]catalog.Snapshot
	under map[bson.ObjectID][]string // the locks for which this process waits while it holds a session
	asked map[bson.ObjectID]bool     // the holders whose ways were followed
}

// reading begins with a reading: it returns who of this process waits while it holds something.
func (q *Queue) reading() (*reading, []*Waiter) {
	q.mu.Lock()
	all := q.nested()
	q.mu.Unlock()
	r := &reading{
		q: q, own: q.Process.Process(), rows: map[string]catalog.Snapshot{},
		under: map[bson.ObjectID][]string{}, asked: map[bson.ObjectID]bool{},
	}
	for _, n := range all {
		for _, ts := range n.party.Holds {
			r.under[ts] = append(r.under[ts], n.Name)
		}
	}
	return r, all
}

// collect reads the locks of which the graph is made: at a second reading those of the first in
// which somebody was stuck, by one command.
func (r *reading) collect(ctx context.Context, from []*Waiter, before *lines) (err error) {
	if before != nil {
		r.rows, err = r.q.Store.Snapshots(ctx, before.stuckIn())
		return err
	}
	whole := false
	for _, n := range from {
		whole = whole || slices.ContainsFunc(n.party.Holds, r.q.elsewhere)
	}
	if !whole {
		whole, err = r.follow(ctx, from)
	}
	if whole && err == nil {
		err = r.list(ctx)
	}
	return err
}

// elsewhere reports whether another Manager of this program has acquired a session: nothing leads
// from there to a waiter that holds it meanwhile.
func (q *Queue) elsewhere(ts bson.ObjectID) bool { return q.Owns != nil && !q.Owns(ts) }

// follow reads the locks that some wait for, and goes on from their holders. It reports whether
// there is more.
func (r *reading) follow(ctx context.Context, from []*Waiter) (more bool, err error) {
	var names, processes []string
	for _, n := range from {
		names = append(names, n.Name)
	}
	var held []bson.ObjectID
	begun := r.q.Clock.Now().Mono
	for range readSteps {
		if r.q.Clock.Now().Mono-begun > readFor {
			break
		}
		looks, err := r.step(ctx, r.unread(names), processes, held)
		if err != nil {
			return false, err
		}
		processes, held, names = r.holders(looks)
		if len(held)+len(r.unread(names)) == 0 {
			return false, nil
		}
	}
	return true, nil
}

// step reads some locks, and at the same time what some holders wait for.
func (r *reading) step(ctx context.Context, names, processes []string, held []bson.ObjectID) (
	looks map[string]catalog.Snapshot, err error,
) {
	var found map[string]catalog.Snapshot
	var failed error
	var both sync.WaitGroup
	if len(held) > 0 {
		both.Go(func() { found, failed = r.q.Store.WaitedUnder(ctx, processes, held) })
	}
	if len(names) > 0 {
		looks, err = r.q.Store.Snapshots(ctx, names)
	}
	if both.Wait(); looks == nil {
		looks = map[string]catalog.Snapshot{}
	}
	for name, row := range found {
		if _, read := r.rows[name]; !read {
			looks[name] = row
		}
	}
	return looks, cmp.Or(err, failed)
}

// unread are the names of which nothing was read, once each.
func (r *reading) unread(names []string) []string {
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		_, read := r.rows[name]
		return read
	})
}

// holders enters locks, and returns who holds them, to be asked for what they wait for, and the
// locks for which they wait as far as it is known.
func (r *reading) holders(looks map[string]catalog.Snapshot) (
	processes []string, held []bson.ObjectID, names []string,
) {
	of := map[string]bool{}
	for name, row := range looks {
		r.rows[name] = row
		if row.Lock == nil {
			continue
		}
		for _, h := range row.Lock.Holders() {
			if r.asked[h.TS] {
				continue
			}
			r.asked[h.TS] = true
			if names = append(names, r.under[h.TS]...); h.Process == r.own {
				continue
			}
			held, of[h.Process] = append(held, h.TS), true
			for _, o := range noted(row.Pings[h.Process]) {
				if slices.Contains(o.Holds, h.TS) {
					names = append(names, o.Lock)
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(of)), held, names
}

// noted are those of a process who wait outside.
func noted(state catalog.PingState) []catalog.Outsider {
	if state.Ping == nil || state.Ping.Note == nil {
		return nil
	}
	return state.Ping.Note.Outsiders
}

// list reads all locks that somebody waits for: those that have a line, and, from those who hold
// them on, those for which somebody waits of whom only a note tells, or this process alone.
func (r *reading) list(ctx context.Context) error {
	for row, err := range r.q.Store.List(ctx, true) {
		switch {
		case errors.Is(err, catalog.ErrMalformed): // nobody stands in it
		case err != nil:
			return err
		default:
			r.rows[row.Lock.Name] = row
		}
	}
	for names := r.unread(r.outside()); len(names) > 0; names = r.unread(r.outside()) {
		looks, err := r.q.Store.Snapshots(ctx, names)
		if err != nil {
			return err
		}
		for _, name := range names {
			r.rows[name] = looks[name] // without a lock if there is none
		}
	}
	return nil
}

// outside are the locks for which somebody waits under something and stands in no line, as far as
// it is known.
func (r *reading) outside() (names []string) {
	for _, of := range r.under {
		names = append(names, of...)
	}
	for _, row := range r.rows {
		for process, state := range row.Pings {
			if process == r.own {
				continue
			}
			for _, o := range noted(state) {
				names = append(names, o.Lock)
			}
		}
	}
	return names
}

// graph makes a graph of what was read.
func (r *reading) graph(all []*Waiter, before *lines) *lines {
	outside := map[string][]outsider{}
	for _, n := range all {
		if n.Line != nil {
			outside[n.Name] = append(outside[n.Name], outsider{Participant: n.party, alone: n.search.alone})
		}
	}
	latest := map[string]catalog.Snapshot{} // by process: where its latest note was seen
	for _, row := range r.rows {
		for process, state := range row.Pings {
			if process == r.own || len(noted(state)) == 0 {
				continue
			}
			seen, ok := latest[process]
			if !ok || seen.Pings[process].Ping.Note.Number < state.Ping.Note.Number {
				latest[process] = row
			}
		}
	}
	for process, row := range latest {
		state := row.Pings[process]
		for _, o := range noted(state) {
			outside[o.Lock] = append(outside[o.Lock], outsider{
				Participant: o.Participant, number: state.Ping.Note.Number,
				silent: silent(state, row.ServerTime),
			})
		}
	}
	l := newLines(before)
	for _, name := range slices.Sorted(maps.Keys(r.rows)) {
		if row := r.rows[name]; row.Lock != nil {
			l.add(row, outside[name])
		}
	}
	l.link()
	return l
}
