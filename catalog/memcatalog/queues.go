package memcatalog

import (
	"context"
	"errors"
	"slices"

	"mongodlm/catalog"
)

// applyChange applies a change to a document, and sends the grants of the change to the streams.
// The caller holds mu.
func (c *Catalog) applyChange(name string, doc fields, change catalog.Change) catalog.Lock {
	after := storedLock(doc.changed(change))
	c.locks[stringKey(name)] = after
	c.deliver(change.Grants)
	return after.lock // zero if the fence exceeds its limit
}

// Snapshots is documented in [catalog.Queues]. It reads all documents at the same instant.
func (c *Catalog) Snapshots(ctx context.Context, names []string) (catalog.Looks, error) {
	if err := c.begin(ctx, catalog.OpSnapshots, ""); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	snapshots := make(catalog.Looks, len(names))
	for _, name := range names {
		if doc := c.locks[stringKey(name)]; doc != nil {
			snapshots[name] = c.snapshot(doc)
		}
	}
	return snapshots, nil
}

// HeldOrFree is documented in [catalog.Queues].
func (c *Catalog) HeldOrFree(ctx context.Context, process string, names, always []string) (
	locks []catalog.Lock, err error,
) {
	if err := c.begin(ctx, catalog.OpHeldOrFree, process); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	for _, name := range names {
		doc := c.locks[stringKey(name)]
		if doc != nil && doc.bad == nil && (!doc.lock.Held || slices.Contains(always, name) ||
			len(doc.lock.GrantsOf(process)) > 0) {
			locks = append(locks, doc.lock)
		}
	}
	return locks, nil
}

var errStreamOver = errors.New("the grant stream has ended")

type stream struct {
	c       *Catalog
	process string
	wake    chan struct{}
	pending []catalog.Grant // guarded by c.mu
	over    bool            // guarded by c.mu
}

// GrantStream is documented in [catalog.Queues].
func (c *Catalog) GrantStream(ctx context.Context, process string) (catalog.GrantStream, error) {
	if err := c.begin(ctx, catalog.OpGrantStream, process); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	s := &stream{c: c, process: process, wake: make(chan struct{}, 1)}
	c.streams[s] = true
	return s, nil
}

// BreakStreams ends every open grant stream, as an election does on a server.
func (c *Catalog) BreakStreams() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.streams {
		s.over = true
		s.signal()
		delete(c.streams, s)
	}
}

// deliver adds grants to the streams of their processes. The caller holds mu.
func (c *Catalog) deliver(grants []catalog.Grant) {
	for s := range c.streams {
		for _, a := range grants {
			if a.Process == s.process {
				s.pending = append(s.pending, a)
				s.signal()
			}
		}
	}
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // a signal is pending
	}
}

// Next is documented in [catalog.GrantStream].
func (s *stream) Next(ctx context.Context) ([]catalog.Grant, error) {
	for {
		s.c.mu.Lock()
		grants, over := s.pending, s.over
		s.pending = nil
		s.c.mu.Unlock()
		switch {
		case len(grants) > 0:
			return grants, nil
		case over:
			return nil, failed(catalog.OpNextGrants, s.process, errStreamOver)
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, failed(catalog.OpNextGrants, s.process, ctx.Err())
		}
	}
}

// Close is documented in [catalog.GrantStream].
func (s *stream) Close(context.Context) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.over, s.pending = true, nil
	s.signal()
	delete(s.c.streams, s)
}
