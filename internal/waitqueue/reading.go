package waitqueue

import (
	"context"
	"errors"
	"maps"
	"slices"
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
	readSteps = 4
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
	under map[bson.ObjectID][]string // the locks for which somebody of this process waits while it holds a session
	asked map[bson.ObjectID]bool     // the holders whose ways were followed
}

// read reads what some wait for, with those who stand outside of the lines, as a graph. before is
// an earlier reading: a session that does not stand in it is in nobody's way.
func (q *Queue) read(ctx context.Context, from []*Waiter, before *lines) (*lines, error) {
	r, all := q.reading()
	if err := r.collect(ctx, from, before); err != nil {
		return nil, err
	}
	return r.graph(all, before), nil
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
		whole = whole || slices.ContainsFunc(n.party.Holds, r.elsewhere)
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
func (r *reading) elsewhere(ts bson.ObjectID) bool { return r.q.Owns != nil && !r.q.Owns(ts) }

// follow reads the locks that some wait for, and goes on from their holders. It reports whether
// there is more.
func (r *reading) follow(ctx context.Context, from []*Waiter) (more bool, err error) {
	var names []string
	for _, n := range from {
		names = append(names, n.Name)
	}
	var rows map[string]catalog.Snapshot // whose holders are to be followed
	begun := r.q.Clock.Now().Mono
	for range readSteps {
		if r.q.Clock.Now().Mono-begun > readFor {
			break
		}
		looks := map[string]catalog.Snapshot{}
		if names = r.unread(names); len(names) > 0 {
			if looks, err = r.q.Store.Snapshots(ctx, names); err != nil {
				return false, err
			}
		}
		maps.Copy(looks, rows)
		var processes []string
		var held []bson.ObjectID
		processes, held, names = r.holders(looks)
		rows = nil
		if len(held) > 0 {
			found, err := r.q.Store.WaitedUnder(ctx, processes, held)
			if err != nil {
				return false, err
			}
			maps.DeleteFunc(found, func(name string, _ catalog.Snapshot) bool {
				_, read := r.rows[name]
				return read
			})
			rows = found
		}
		if names = r.unread(names); len(names)+len(rows) == 0 {
			return false, nil
		}
	}
	return true, nil
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
func (r *reading) holders(looks map[string]catalog.Snapshot) (processes []string, held []bson.ObjectID, names []string) {
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

// list reads all locks that somebody waits for.
func (r *reading) list(ctx context.Context) error {
	r.rows = map[string]catalog.Snapshot{}
	for row, err := range r.q.Store.List(ctx, true) {
		switch {
		case errors.Is(err, catalog.ErrMalformed): // nobody stands in it
		case err != nil:
			return err
		default:
			r.rows[row.Lock.Name] = row
		}
	}
	return nil
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
			if seen, ok := latest[process]; !ok || seen.Pings[process].Ping.Note.Number < state.Ping.Note.Number {
				latest[process] = row
			}
		}
	}
	for process, row := range latest {
		state := row.Pings[process]
		for _, o := range noted(state) {
			outside[o.Lock] = append(outside[o.Lock], outsider{
				Participant: o.Participant, number: state.Ping.Note.Number, silent: silent(state, row.ServerTime),
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
