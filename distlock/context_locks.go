package distlock

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// The lineage of a context is the guards under which it lives: that of a guard's context is the
// guard and the lineage of the context with which it was acquired. So a call of Lock with a guard's
// context says what its caller holds while it waits.

type lineageKey struct{}

// A lineage is one guard and those above it.
type lineage struct {
	h     *holding
	above *lineage
}

// maxHolds bounds how many sessions a waiter's entry names. An entry of so many has some 18 KB, and
// a full line of such entries a ninth of what a document may have.
const maxHolds = 1000

// owned returns what the caller of Lock holds while it waits: the guards that it names, see
// [Holding], else those under whose contexts it lives. Nothing is presumed. What was released is
// left out; what was lost is not, since the lock stays in the way until it is released or taken
// over.
func owned(ctx context.Context, o acquireOptions) []*holding {
	var own []*holding
	add := func(h *holding) {
		if !h.givenBack() && !slices.Contains(own, h) {
			own = append(own, h)
		}
	}
	if o.says {
		for _, g := range o.holding {
			add(g.h)
		}
		return own
	}
	line, _ := ctx.Value(lineageKey{}).(*lineage)
	for ; line != nil; line = line.above {
		add(line.h)
	}
	return own
}

// holds are the sessions that the caller holds while it waits, or others until it has ended, as far
// as a waiter's entry names them.
func (c *call) holds(ctx context.Context) (named []bson.ObjectID) {
	for _, h := range owned(ctx, c.o) {
		named = append(named, h.session.TS)
	}
	named = append(named, c.o.outer...)
	return named[:min(len(named), maxHolds)]
}

// standsInOwnWay returns the plainest deadlock, which needs no search: the caller wants what it
// holds itself, and the two do not go together.
func (m *Manager) standsInOwnWay(ctx context.Context, name string, o acquireOptions) error {
	if o.bounded && o.wait == 0 {
		return nil // it does not wait
	}
	permits := 0
	for _, h := range owned(ctx, o) {
		switch {
		case h.m != m || h.session.Name != name || h.limit != o.limit || h.err() != nil:
			// Of another store perhaps; with another limit the server says what is wrong; what was
			// lost may be another's by now.
			continue
		case o.mode == catalog.Permit:
			if permits++; permits < int(o.limit) {
				continue
			}
		case o.mode == catalog.Shared && h.mode == catalog.Shared:
			continue
		}
		why := ""
		if h.why != "" {
			why = " (" + quoted(h.why) + ")"
		}
		return &DeadlockError{Name: name, Chain: []string{fmt.Sprintf("the caller waits for %s, which "+
			"it holds itself%s; TryGuard.Reenter acquires once more what one holds", quoted(name), why)}}
	}
	return nil
}

// A guardContext is the context of a holding as its user has it. It keeps the guards that it stands
// for, and so does every context derived from it: a caller that keeps only the context holds the
// lock. One derived from it whose cancel is never called keeps them for as long as the holding
// lasts: the context package knows no other way, and a lock that is held for too long is the safe
// side.
type guardContext struct {
	context.Context     // of the holding, which ends when that does
	keeps           any // the guard, or the guards
}
