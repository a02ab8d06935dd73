package distlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// Fenced adds the fence to a filter and to an update. If it cannot add the fence to an update, or
// if the lock may have several holders, it returns an error.
func TestFenced_Shapes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.MustTry("a")
		set := bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: 1}}}}
		filter, update, err := g.Fenced(bson.D{{Key: "_id", Value: 7}}, set)
		assert.Must(t, err)
		notNewer := bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: "_fence", Value: bson.D{{Key: "$exists", Value: false}}}},
			bson.D{{Key: "_fence", Value: bson.D{{Key: "$lte", Value: g.Fence()}}}}}}}
		same(t, "filter", filter,
			bson.D{{Key: "$and", Value: bson.A{bson.D{{Key: "_id", Value: 7}}, notNewer}}})
		same(t, "update", update,
			append(set, bson.E{Key: "$max", Value: bson.D{{Key: "_fence", Value: g.Fence()}}}))
		same(t, "caller's update", set, bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: 1}}}})

		most := bson.D{{Key: "$max", Value: bson.D{{Key: "best", Value: 3}}}}
		filter, update, err = g.Fenced(nil, most)
		assert.Must(t, err)
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
		for _, g := range []*distlock.TryGuard{
			p.MustTry("r", distlock.Shared()), p.MustTry("p", distlock.Permits(2)),
		} {
			_, _, err := g.Fenced(nil, set)
			wantErr(t, err, distlock.ErrBadOption)
		}
		_, _, err = p.MustTry("one", distlock.Permits(1)).Fenced(nil, set)
		assert.NoErr(t, err, "the only permit")
	})
}

func same(t *testing.T, what string, got, want bson.D) {
	t.Helper()
	a := assert.Value(bson.MarshalExtJSON(got, true, false))(t)
	b := assert.Value(bson.MarshalExtJSON(want, true, false))(t)
	if string(a) != string(b) {
		t.Errorf("%s is\n%s, want\n%s", what, a, b)
	}
}

// If the given function fails, the outcome is unknown, or the context ends, InTransaction returns
// an error with the reason. The guard stays valid. If the lock is lost, too, InTransaction returns
// both errors.
func TestInTransaction_WaysOut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, other := w.start(nil), w.start(nil)
		g := p.MustTry("a")
		ok := func(context.Context) error { return nil }
		assert.NoErr(t, g.InTransaction(t.Context(), ok))
		mine := errors.New("mine")
		if err := g.InTransaction(t.Context(), func(context.Context) error { return mine }); err != mine {
			t.Errorf("error is %v, want work's own as it is", err)
		}
		wantErr(t, g.InTransaction(t.Context(), nil), distlock.ErrBadOption)
		p.Store.Set(fault.Losing(fault.Transact))
		wantErr(t, g.InTransaction(t.Context(), ok), distlock.ErrOutcomeUnknown)
		p.Store.Set(nil)
		assert.NoErr(t, g.Err(), "the guard suffered")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := g.InTransaction(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		wantErr(t, err, context.DeadlineExceeded)
		err = g.InTransaction(t.Context(), func(context.Context) error {
			w.breaking(other, "a")
			return mine
		})
		wantErr(t, err, mine)
		wantErr(t, err, distlock.ErrLockLost)
	})
}

// When a guard expires, the context of its transaction ends, and so does the wait of another call
// of InTransaction.
func TestInTransaction_GuardExpires_EndsWorkAndWait(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.MustTry("a")
		p.Store.Set(fault.Refusing(fault.Ping))
		time.Sleep(time.Minute)
		waits := make(chan error, 1)
		err := g.InTransaction(t.Context(), func(ctx context.Context) error {
			go func() {
				waits <- g.InTransaction(t.Context(), func(context.Context) error { return nil })
			}()
			<-ctx.Done()
			wantErr(t, <-waits, distlock.ErrLockLost)
			return ctx.Err()
		})
		wantErr(t, err, distlock.ErrLockLost)
		if late := time.Since(g.Deadline()); late > time.Second {
			t.Errorf("it ended %v after the deadline of the guard", late)
		}
	})
}

// A transaction must not contain another transaction of the same lock. If the inner call of
// InTransaction gets the context of the outer transaction, it returns ErrBadOption immediately.
// With another context, it waits until that context ends.
func TestInTransaction_Nested_IsRefusedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g, other := p.MustTry("a"), p.MustTry("b")
		again, err := g.Reenter()
		assert.Must(t, err)
		never := func(context.Context) error { t.Error("it ran"); return nil }
		start, runs := time.Now(), 0
		err = g.InTransaction(t.Context(), func(ctx context.Context) error {
			wantErr(t, g.InTransaction(ctx, never), distlock.ErrBadOption)
			wantErr(t, again.InTransaction(ctx, never), distlock.ErrBadOption)
			waits, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			wantErr(t, again.InTransaction(waits, never), context.DeadlineExceeded)
			assert.Equal(t, time.Since(start), time.Second, "it waited %v, want %v")
			return other.InTransaction(ctx, func(ctx context.Context) error {
				wantErr(t, g.InTransaction(ctx, never), distlock.ErrBadOption)
				runs++
				return nil
			})
		})
		if err != nil || runs != 1 || time.Since(start) != time.Second {
			t.Errorf("error %v, %d runs, %v", err, runs, time.Since(start))
		}
		err = again.InTransaction(t.Context(), func(context.Context) error { runs++; return nil })
		if err != nil || runs != 2 {
			t.Errorf("afterwards: %v, %d runs", err, runs)
		}
	})
}
