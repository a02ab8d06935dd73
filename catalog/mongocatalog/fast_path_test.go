package mongocatalog_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// The commands in fast_path.go change a lock without reading it first. They do not match a lock
// that is shared, foreign, damaged, or free with waiters, or that has a full queue.
func TestShort_CommonCase_AndNothingElse(t *testing.T) {
	t.Parallel()
	me, other, reader := writer(1), writer(2), reader(3)
	without := func(d bson.D, field string) bson.D { return remove(d, []string{field}) }
	doc := func(state int32, holder transition.Enter, more ...bson.E) bson.D {
		d := bson.D{
			e("_id", "x"), e("state", state), e("process", "p"), e("ts", holder.TS),
			e("fence", int64(1)<<40), e("rev", int64(7)),
		}
		for _, m := range more {
			d = put(d, []string{m.Key}, m.Value)
		}
		return d
	}
	waiters := func(entries ...any) bson.E { return e("waiters", bson.A(entries)) }
	nameless := put(entry(other), []string{"process"}, "")
	full := bson.A{}
	for i := range catalog.MaxWaiters {
		full = append(full, entry(writer(byte(100+i))))
	}
	for _, c := range []struct {
		name         string
		doc          bson.D
		enter, leave bool // the commands that match when session me enters or leaves
	}{
		{"NoDocument", nil, true, false},
		{"Free", doc(0, other), true, false},
		{"FreeAndMineBefore", doc(0, me), false, false},
		{"HeldByOther", doc(1, other), true, false},
		{"HeldByMe", doc(1, me), false, true},
		{"HeldByMeWithWaiters", doc(1, me, waiters(entry(other))), false, true},
		{"HeldByOtherWithWaiters", doc(1, other, waiters(entry(reader))), true, false},
		{"ReaderIsNext", doc(1, me, waiters(entry(reader))), false, false},
		{"IWaitAlready", doc(1, other, waiters(entry(me))), false, false},
		{"FreeWithWaiters", doc(0, other, waiters(entry(reader))), false, false},
		{"Full", doc(1, other, e("waiters", full)), false, false},
		{"Shared", doc(1, other, e("mode", "shared"), e("sharers", bson.A{entry(other)})), false, false},
		{"Permits", doc(1, other, e("limit", int32(3))), false, false},
		{"StateIsADouble", doc(1, other, e("state", 1.0)), false, false},
		{"StateIsAnArray", doc(1, other, e("state", bson.A{int32(0)})), false, false},
		{"NoState", without(doc(1, other), "state"), false, false},
		{"NoFence", without(doc(1, other), "fence"), false, false},
		{"FenceTooLarge", doc(1, me, e("fence", int64(1)<<62+1)), false, false},
		{"NoRev", without(doc(1, me), "rev"), false, false},
		{"WaitersAreANumber", doc(1, me, e("waiters", int32(5))), false, false},
		{"WaitersAreADocument", doc(1, me, e("waiters", bson.D{e("0", entry(other))})), false, false},
		{"AWaiterIsANumber", doc(1, me, waiters(entry(other), int32(5))), false, false},
		{"AWaiterHasNoTS", doc(1, me, waiters(entry(other), without(entry(other), "ts"))), false, false},
		{"AWaiterHasNoProcess", doc(1, me, waiters(nameless)), false, false},
		{"ProcessIsANumber", doc(1, me, e("process", int32(5))), false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for s, want := range map[step]bool{me: c.enter, leave(1): c.leave} {
				f := short(s)[0]
				_, ok, _, err := evaluated(c.doc, f.filter, f.pipeline, s == step(me))
				if err != nil || ok != want {
					t.Errorf("%T: matched %v, want %v; %v", s, ok, want, err)
				}
			}
		})
	}
}
