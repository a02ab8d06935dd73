package distlock

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// The lineage of a context is the guards under which it lives: that of a guard's context is the guard
// and the lineage of the context with which it was acquired. So a call of Lock with a guard's
// context says what its caller holds while it waits.

type lineageKey struct{}

// A lineage is one guard and those above it.
type lineage struct {
	h     *holding
	above *lineage
}

// lineage returns the context under which a new holding lives.
func (a *attempt) lineage(ctx context.Context, h *holding) context.Context {
	above, _ := ctx.Value(lineageKey{}).(*lineage)
	return context.WithValue(ctx, lineageKey{}, &lineage{h, above})
}

// maxHolds bounds how many sessions a waiter's entry names.
const maxHolds = 32

// holds returns the sessions that the caller of Lock holds: those it says, else those of its
// context's lineage, else, presumed, those of the whole Manager as long as no other call waits.
func (m *Manager) holds(ctx context.Context, name string, o acquireOptions) (
	sessions []bson.ObjectID, presumed bool,
) {
	if o.says {
		for _, g := range o.holding {
			sessions = append(sessions, g.h.session.TS)
		}
		return few(sessions), false
	}
	line, _ := ctx.Value(lineageKey{}).(*lineage)
	for ; line != nil; line = line.above {
		if !line.h.over() {
			sessions = append(sessions, line.h.session.TS)
		}
	}
	if len(sessions) > 0 || m.room.calls() > 1 {
		return few(sessions), false
	}
	for _, h := range m.table.all() {
		// Another guard of the same name is another goroutine's: nobody waits for himself so.
		if h.session.Name != name {
			sessions = append(sessions, h.session.TS)
		}
	}
	if len(sessions) > maxHolds { // a process of many locks does not wait as one
		return nil, false
	}
	slices.SortFunc(sessions, compareIDs)
	return sessions, len(sessions) > 0
}

func few(sessions []bson.ObjectID) []bson.ObjectID {
	return sessions[:min(len(sessions), maxHolds)]
}

func compareIDs(a, b bson.ObjectID) int { return slices.Compare(a[:], b[:]) }

// modeWord is the mode of a lock for people.
func modeWord(m catalog.Mode) string {
	if m == catalog.Exclusive {
		return "exclusive"
	}
	return string(m)
}
