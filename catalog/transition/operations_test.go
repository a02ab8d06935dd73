package transition_test

import (
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// Each transition and each change of a ping returns a different Op. The method Writes of each Op
// returns true.
func TestOps_EveryChangeHasOneAndWrites(t *testing.T) {
	t.Parallel()
	seen := map[catalog.Op]bool{}
	for _, c := range []interface{ Op() catalog.Op }{
		transition.Enter{How: catalog.TryPlain}, transition.Enter{}, transition.Leave{},
		transition.Evict{}, transition.GrantNext{}, transition.Confirm{}, transition.SeedFence{},
		transition.Renew{}, transition.PutFirst{}, transition.RequestYield{}, transition.Break{},
		transition.Condemn{}, transition.Witness{}, transition.RemovePing{},
	} {
		op := c.Op()
		if !slices.Contains(catalog.Ops(), op) || !op.Writes() || seen[op] {
			t.Errorf("%T: %q is not a writing operation, or not only of this type", c, op)
		}
		seen[op] = true
	}
}

// A release queues a session only while fewer than MaxEnqueued others wait.
func TestLeave_LongQueue_EnqueuesNothing(t *testing.T) {
	t.Parallel()
	for others := transition.MaxEnqueued - 1; others < transition.MaxEnqueued+2; others++ {
		own, next := request(0, catalog.Exclusive, 0), request(1, catalog.Exclusive, 0)
		l := catalog.Lock{Name: own.Name, Held: true, TS: own.TS, Process: own.Process, Fence: 1 << 40}
		for n := range others + 1 { // the first one is granted the lock
			l.Waiters = append(l.Waiters, waiter(request(2+n, catalog.Exclusive, 0)))
		}
		c, err := transition.Leave{Session: own.Session, Enqueue: &next}.Next(l, noon)
		if err != nil {
			t.Fatal(err)
		}
		left := 0
		for _, e := range c.Set {
			if list, ok := e.Value.(bson.A); ok && e.Key == "waiters" {
				left = len(list)
			}
		}
		if added := left > others; added != (others < transition.MaxEnqueued) {
			t.Errorf("beside %d others: queued %t", others, added)
		}
	}
}
