package distlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/fault"
)

// What Fenced makes of a filter and an update, and what it refuses.
func TestFenced_Shapes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.mustTry("a")
		set := bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: 1}}}}
		filter, update, err := g.Fenced(bson.D{{Key: "_id", Value: 7}}, set)
		if err != nil {
			t.Fatal(err)
		}
		notNewer := bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: "_fence", Value: bson.D{{Key: "$exists", Value: false}}}},
			bson.D{{Key: "_fence", Value: bson.D{{Key: "$lte", Value: g.Fence()}}}}}}}
		same(t, "filter", filter, bson.D{{Key: "$and", Value: bson.A{bson.D{{Key: "_id", Value: 7}}, notNewer}}})
		same(t, "update", update, append(set, bson.E{Key: "$max", Value: bson.D{{Key: "_fence", Value: g.Fence()}}}))
		same(t, "caller's update", set, bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: 1}}}})

		most := bson.D{{Key: "$max", Value: bson.D{{Key: "best", Value: 3}}}}
		filter, update, err = g.Fenced(nil, most)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "empty filter", filter, notNewer)
		same(t, "update with $max", update, bson.D{{Key: "$max", Value: bson.D{
			{Key: "best", Value: 3}, {Key: "_fence", Value: g.Fence()}}}})

		for name, bad := range map[string]bson.D{
			"empty":              nil,
			"replacement":        {{Key: "x", Value: 1}},
			"writes the fence":   {{Key: "$set", Value: bson.D{{Key: "_fence", Value: 1}}}},
			"fields are a map":   {{Key: "$set", Value: bson.M{"x": 1}}},
			"an empty operator":  {{Key: "", Value: bson.D{}}},
			"fields are missing": {{Key: "$set", Value: nil}},
		} {
			if _, _, err := g.Fenced(nil, bad); !errors.Is(err, distlock.ErrBadOption) {
				t.Errorf("%s: %v, want ErrBadOption", name, err)
			}
		}
		_ = g.Release()
		_, _, err = g.Fenced(nil, set)
		wantErr(t, err, distlock.ErrReleased)
	})
}

func same(t *testing.T, what string, got, want bson.D) {
	t.Helper()
	a, err := bson.MarshalExtJSON(got, true, false)
	if err != nil {
		t.Fatal(err)
	}
	b, err := bson.MarshalExtJSON(want, true, false)
	if err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) {
		t.Errorf("%s is\n%s, want\n%s", what, a, b)
	}
}

// B2: the holder is stopped in the middle of a transaction, somebody takes the lock over, the holder
// goes on: nothing is committed, the guard is lost.
func TestInTransaction_TakenOverMeanwhile_IsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.mustTry("a")
		err := g.InTransaction(t.Context(), func(context.Context) error {
			a.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				if call.Op == fault.Transact {
					return apply()
				}
				return fault.Refused(call.Op)
			})
			b.until("a", 10*time.Second, takeoverTime+time.Minute)
			return nil
		})
		wantErr(t, err, distlock.ErrLockLost)
		wantErr(t, g.Err(), distlock.ErrLockLost)
	})
}

// Each way out of a transaction, and what becomes of the guard.
func TestInTransaction_WaysOut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.mustTry("a")
		ok := func(context.Context) error { return nil }
		if err := g.InTransaction(t.Context(), ok); err != nil {
			t.Error(err)
		}
		mine := errors.New("mine")
		if err := g.InTransaction(t.Context(), func(context.Context) error { return mine }); err != mine {
			t.Errorf("error is %v, want work's own as it is", err)
		}
		wantErr(t, g.InTransaction(t.Context(), nil), distlock.ErrBadOption)
		p.store.Set(loseReply(fault.Transact))
		wantErr(t, g.InTransaction(t.Context(), ok), distlock.ErrOutcomeUnknown)
		p.store.Set(nil)
		if err := g.Err(); err != nil {
			t.Errorf("the guard suffered: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := g.InTransaction(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		wantErr(t, err, context.DeadlineExceeded)
		_ = g.Release()
		called := false
		err = g.InTransaction(t.Context(), func(context.Context) error { called = true; return nil })
		wantErr(t, err, distlock.ErrReleased)
		if called {
			t.Error("work was called without the lock")
		}
	})
}

// A transaction is bounded by the guard: at its deadline the context given to work ends.
func TestInTransaction_GuardExpires_EndsWork(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.mustTry("a")
		p.kill()
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Ping {
				return fault.Refused(call.Op)
			}
			return apply()
		})
		start := time.Now()
		err := g.InTransaction(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		wantErr(t, err, distlock.ErrLockLost)
		if took := time.Since(start); took > holdTime+time.Second {
			t.Errorf("it took %v, the guard was trusted for %v", took, holdTime)
		}
	})
}
