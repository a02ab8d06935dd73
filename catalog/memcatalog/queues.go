package memcatalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// turn writes a change and sends its grants to the streams. The caller holds mu.
func (c *Catalog) turn(op catalog.Op, name string, doc fields, change catalog.Change) (
	catalog.Lock, error,
) {
	raw, err := doc.changed(change)
	if err != nil {
		return catalog.Lock{}, failed(op, name, err)
	}
	l, _ := c.putLock(stringKey(name), raw) // malformed if the fence reached its limit
	c.tell(change.Grants)
	return l, nil
}

// Snapshots is documented in [catalog.Queues]. It reads all documents at one instant.
func (c *Catalog) Snapshots(ctx context.Context, names []string) (catalog.Looks, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	looks := make(catalog.Looks, len(names))
	for _, name := range names {
		if raw := c.locks[stringKey(name)]; raw != nil {
			looks[name] = c.lookAt(raw)
		}
	}
	return looks, nil
}

// HeldOrFree is documented in [catalog.Queues].
func (c *Catalog) HeldOrFree(ctx context.Context, process string, names, lines []string) (
	locks []catalog.Lock, err error,
) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("ask for grants: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		raw := c.locks[stringKey(name)]
		l, bad := c.understood(raw)
		if raw == nil || bad != nil {
			continue
		}
		if !l.Held || len(l.GrantsOf(process)) > 0 || slices.Contains(lines, name) {
			locks = append(locks, l)
		}
	}
	return locks, nil
}

// awaited applies the filter {"waiters.process": {$exists: true}}.
func awaited(doc fields) bool {
	line := doc.get("waiters")
	named := func(v bson.RawValue) bool {
		party, ok := v.DocumentOK()
		return ok && party.Lookup("process").Type != 0
	}
	list, ok := line.ArrayOK()
	if !ok {
		return named(line)
	}
	values, err := list.Values()
	return err == nil && slices.ContainsFunc(values, named)
}

// errStreamOver is the error of Next after the store closed the stream.
var errStreamOver = errors.New("the stream of grants is over")

// A stream passes grants to one process.
type stream struct {
	c       *Catalog
	process string
	wake    chan struct{}
	pending []catalog.Grant // guarded by c.mu
	over    bool            // guarded by c.mu
}

// GrantStream is documented in [catalog.Queues].
func (c *Catalog) GrantStream(ctx context.Context, process string) (catalog.GrantStream, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed("open the stream of grants for", process, err)
	}
	s := &stream{c: c, process: process, wake: make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams[s] = true
	return s, nil
}

// BreakStreams closes every open stream of grants, like an election or an invalidation.
func (c *Catalog) BreakStreams() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.streams {
		s.over = true
		s.signal()
		delete(c.streams, s)
	}
}

// tell passes grants to the streams of their processes. The caller holds mu.
func (c *Catalog) tell(grants []catalog.Grant) {
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
			return nil, failed("the stream of grants for", s.process, errStreamOver)
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, failed("the stream of grants for", s.process, ctx.Err())
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
