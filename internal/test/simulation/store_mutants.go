package simulation

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// A StoreMistake is one thing that the store of a run does wrong; 0 is none.
type StoreMistake uint8

// What a store may do wrong.
const (
	OvertakeByName     StoreMistake = iota + 1 // an overtake names only the lock
	ReleaseByName                              // a release names only the lock
	UpsertingPing                              // a ping makes a condemned process live
	LenientDecode                              // a lock without a state is free
	WriteConcernOne                            // a write is acknowledged too early
	ReleaseForgetsLine                         // a release frees the lock for nobody
	NewcomerFirst                              // a newcomer stands before the others
	EvictByProcess                             // an eviction names only the process
	QuitterStays                               // who gives up stays in the line
	LatePingCounts                             // the server counts the pings, late ones too
)

func (s *store) makes(m StoreMistake) bool { return s.w.s.StoreMistake == m }

// Apply carries a transition out, with the mistakes of the store.
func (s *store) Apply(ctx context.Context, t catalog.Transition) (l catalog.Lock,
	grants []catalog.Grant, err error) {
	switch t := t.(type) {
	case transition.Enter:
		l, err = s.Enter(ctx, t.Request, t.How)
	case transition.Leave:
		grants, err = s.Leave(ctx, t.Session)
	case transition.Evict:
		grants, err = s.Evict(ctx, t.Holder, t.Evidence)
	case transition.Overtake:
		l, err = s.Overtake(ctx, t.Request, t.From)
	default:
		return s.Catalog.Apply(ctx, t)
	}
	return l, grants, err
}

// Overtake carries an overtake out. OvertakeByName takes the lock from whoever holds it.
func (s *store) Overtake(ctx context.Context, r catalog.Request, from catalog.Holder) (
	catalog.Lock, error) {
	if s.makes(OvertakeByName) {
		if now, err := s.Catalog.Read(ctx, r.Name); err == nil && now.Held {
			from = catalog.Holder{Session: now.Session(), Process: now.Process}
		}
	}
	return s.Calls.Overtake(ctx, r, from)
}

// Ping carries a ping out. UpsertingPing lets a condemned process live, LatePingCounts gives a ping
// that comes late the next number, as a server would that counts.
func (s *store) Ping(ctx context.Context, b catalog.Heartbeat) (catalog.Pinged, error) {
	if s.makes(UpsertingPing) {
		var doc bson.D
		raw := s.Document(catalog.PingsCollection, b.Process)
		if raw != nil && bson.Unmarshal(raw, &doc) == nil {
			if err := s.Put(catalog.PingsCollection, without(doc, "condemned")); err != nil {
				return catalog.Pinged{}, err
			}
		}
	}
	if s.makes(LatePingCounts) {
		raw := s.Document(catalog.PingsCollection, b.Process)
		if p, bad := catalog.ParsePing(raw); raw != nil && bad == nil && p.Seq >= b.Seq {
			b.Seq, b.Mine = p.Seq+1, nil
		}
	}
	return s.Catalog.Ping(ctx, b)
}

func without(doc bson.D, name string) bson.D {
	kept := bson.D{}
	for _, e := range doc {
		if e.Key != name {
			kept = append(kept, e)
		}
	}
	return kept
}

// misread makes a document without a state one of a free lock, as a lenient decoder does.
func (s *store) misread(name string) error {
	if !s.makes(LenientDecode) {
		return nil
	}
	var doc bson.D
	raw := s.Document(catalog.LocksCollection, name)
	if _, missing := raw.LookupErr("state"); raw == nil || missing == nil ||
		bson.Unmarshal(raw, &doc) != nil {
		return nil
	}
	return s.Put(catalog.LocksCollection, append(doc, bson.E{Key: "state", Value: int32(0)}))
}

// lenient makes of a lock without a state a free one, as a lenient decoder does.
func (s *store) lenient(name string, look catalog.Snapshot) catalog.Snapshot {
	if s.makes(LenientDecode) && look.LockErr != nil && look.LockErr.Field == "state" {
		look.Lock, look.LockErr = &catalog.Lock{Name: name}, nil
	}
	return look
}

// rolledBack acknowledges a write before a majority has it; the election that follows takes it
// back (WriteConcernOne).
func (s *store) rolledBack(c *call) error {
	before := s.w.judge.before(c)
	if err := c.do(); err != nil {
		return err
	}
	if err := s.restore(before.collection, c.subject, before.raw); err != nil {
		return err
	}
	s.w.log.add("%s is acknowledged, then rolled back", c.who())
	return nil
}
