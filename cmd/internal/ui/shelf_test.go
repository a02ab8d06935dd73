package ui_test

import (
	"context"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/distlock/history"
)

// shelf is a history in memory, with an Observer and a reader. It records the same data as a
// history.Log.
type shelf struct {
	mu      sync.Mutex // guards the fields below
	entries []history.Entry
	reads   int
	err     error // read returns this error
}

func (s *shelf) Observe(e distlock.Event) {
	switch {
	case e.Kind < distlock.EventAcquired || e.Kind > distlock.EventEvicted,
		e.Kind == distlock.EventRefused || e.Kind == distlock.EventGaveUp:
		return
	}
	entry := history.Entry{ID: bson.NewObjectID(), At: e.At, Kind: e.Kind.String(), Name: e.Name,
		Process: e.Process, Previous: e.Previous, Session: e.Session, Fence: e.Fence, Why: e.Why,
		Rule: e.Rule, Evidence: e.Evidence, HeldMS: e.Held.Milliseconds()}
	if e.Err != nil {
		entry.Cause = e.Err.Error()
	}
	s.put(entry)
}

func (s *shelf) put(all ...history.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, all...)
	slices.SortStableFunc(s.entries, func(a, b history.Entry) int { return a.At.Compare(b.At) })
}

func (s *shelf) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *shelf) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *shelf) read(_ context.Context, q history.Query) (
	found []history.Entry, _ []*distlock.MalformedError, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.err != nil {
		return nil, nil, s.err
	}
	for _, e := range slices.Backward(s.entries) {
		if len(found) < q.Limit && (q.Name == "" || q.Name == e.Name) {
			found = append(found, e)
		}
	}
	return found, nil, nil
}
