package distlock

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

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
