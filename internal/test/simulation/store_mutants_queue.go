package simulation

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// This file holds the mistakes that a store makes with the line of a lock.

// Leave takes a session out. ReleaseByName frees the lock whoever holds it; ReleaseForgetsLine
// frees it and forgets who waits; QuitterStays leaves a waiter that gave up in the line.
func (s *store) Leave(ctx context.Context, session catalog.Session) ([]catalog.Grant, error) {
	l, ok := s.lockAsOf(session.Name, nil)
	_, holds := l.HeldBy(session.TS)
	_, waits := l.WaitedBy(session.TS)
	switch {
	case !ok:
	case s.makes(ReleaseByName) && l.Held:
		session = l.Session()
	case s.makes(ReleaseForgetsLine) && holds && len(l.Waiters) > 0:
		return nil, s.edit(session.Name, func(doc bson.D) bson.D {
			return append(without(without(doc, "waiters"), "state"), bson.E{Key: "state", Value: int32(0)})
		})
	case s.makes(QuitterStays) && waits:
		return nil, nil
	}
	return s.Calls.Leave(ctx, session)
}

// Enter lets a contender into the line. NewcomerFirst puts it before the others.
func (s *store) Enter(ctx context.Context, r catalog.Request, how catalog.EnterMode) (
	catalog.Lock, error) {
	if how == catalog.TryPlain {
		if err := s.misread(r.Name); err != nil {
			return catalog.Lock{}, err
		}
		return s.Calls.Enter(ctx, r, how)
	}
	before, _ := s.lockAsOf(r.Name, nil)
	l, err := s.Calls.Enter(ctx, r, how)
	if err != nil || !s.makes(NewcomerFirst) {
		return l, err
	}
	if _, stood := before.WaitedBy(r.TS); stood || placeOf(l, r.TS) < 1 {
		return l, nil
	}
	err = s.edit(r.Name, func(doc bson.D) bson.D {
		for i, e := range doc {
			if line, ok := e.Value.(bson.A); ok && e.Key == "waiters" {
				last := len(line) - 1
				doc[i].Value = slices.Insert(slices.Clone(line[:last]), 0, line[last])
			}
		}
		return doc
	})
	l, _ = s.lockAsOf(r.Name, nil)
	return l, err
}

// Evict takes a dead party out. EvictByProcess takes any session of its process.
func (s *store) Evict(ctx context.Context, dead catalog.Holder, evidence string) (
	[]catalog.Grant, error) {
	if s.makes(EvictByProcess) {
		l, _ := s.lockAsOf(dead.Name, nil)
		for _, p := range partiesOf(l) {
			if p.Process == dead.Process {
				dead.TS = p.TS
				break
			}
		}
	}
	return s.Calls.Evict(ctx, dead, evidence)
}

// edit changes a lock document as the store never would.
func (s *store) edit(name string, change func(bson.D) bson.D) error {
	var doc bson.D
	if err := bson.Unmarshal(s.Document(catalog.LocksCollection, name), &doc); err != nil {
		return err
	}
	return s.Put(catalog.LocksCollection, change(doc))
}
