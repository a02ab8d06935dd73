package catalogtest

import (
	"context"
	"maps"
	"reflect"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

func free(name string) bson.D {
	return bson.D{field("_id", name), field("state", int32(0))}
}

func held(name, process string) bson.D {
	return bson.D{
		field("_id", name), field("state", int32(1)), field("process", process),
		field("ts", bson.NewObjectID()),
	}
}

var acquireCases = []testCase{
	{"NewName_WritesTheWholeDocument", func(b *bench) {
		r := request("balancer", alice)
		l := b.acquire(r)
		b.wantDocument(b.document("locks", "balancer"), acquired(r, 1, 1))
		if !l.When.IsZero() && !b.near(l.When) {
			b.Errorf("when is %v, not the server's clock", l.When)
		}
		l.When = time.Time{}
		want := catalog.Lock{
			Name: "balancer", Held: true, State: 1, Process: alice, Who: r.Who, Why: r.Why,
			TS: r.TS, Fence: 1, Takeover: takeover,
		}
		if !reflect.DeepEqual(l, want) {
			b.Errorf("lock\nwant %+v\ngot  %+v", want, l)
		}
	}},
	{"StateMissing_IsNotFree", func(b *bench) { // F1
		b.insert("locks", bson.D{field("_id", "balancer"), field("fence", int64(3))})
		b.wantUntouched("locks", "balancer", func() {
			_, err := On(b.Catalog).Acquire(b.ctx, request("balancer", alice))
			b.wantErr(err, catalog.ErrNotFree)
		})
		_, err := b.Catalog.Read(b.ctx, "balancer")
		b.wantMalformed(err, "locks", "balancer", "state")
	}},
	{"AnyNameAndText_IsData", func(b *bench) { // F13, G4, G5, G6
		var sessions []catalog.Session
		for i, name := range []string{
			"$set", "a.b", "$where.x", " ", "..", "../x", "config.locks", "🔒", "\u202eabc", "a\nb",
			strings.Repeat("n", 1024), `{"$gt": ""}`, "'\"", "has the field 'rev' of",
			"é", "e\u0301", "E\u0301", "lock", "Lock", "lock ", " lock", // different locks
		} {
			r := request(name, "$"+alice)
			r.Who = "$who"
			r.Why = []string{"$$NOW", "", strings.Repeat("w", 1024), "two\nlines \x1b[31m"}[i%4]
			b.acquire(r)
			b.wantDocument(b.document("locks", name), acquired(r, 1, 1))
			_, err := On(b.Catalog).Acquire(b.ctx, request(name, bob))
			b.wantErr(err, catalog.ErrNotFree)
			sessions = append(sessions, r.Session)
		}
		for _, s := range sessions {
			assert.NoErr(b, b.release(s), s.Name)
		}
	}},
	{"DeletedWhileHeld_FenceStartsAnewUntilSeeded", func(b *bench) { // F12
		r := request("balancer", alice)
		b.acquire(r)
		assert.Must(b, b.Delete(b.ctx, "locks", "balancer"))
		b.wantErr(b.release(r.Session), catalog.ErrNoMatch)
		next := request("balancer", bob)
		if l := b.acquire(next); l.Fence != 1 {
			b.Errorf("fence: want 1, got %d", l.Fence)
		}
		l, err := On(b.Catalog).SeedFence(b.ctx, next.Session, 1_700_000_000_000)
		if err != nil || l.Fence != 1_700_000_000_000 {
			b.Errorf("seeded: %+v, %v", l, err)
		}
	}},
	{"EndedContext_IsCertainlyNotApplied", func(b *bench) {
		r := b.queued("balancer", 2)[0]
		ctx, cancel := context.WithCancel(b.ctx)
		cancel()
		b.wantUntouched("locks", "balancer", func() {
			for name, op := range everyOperation(b.Catalog, r) {
				b.Log(name)
				b.wantErr(op(ctx), context.Canceled)
			}
		})
	}},
}

// Operations maps the name of a store operation to a function that calls the operation with valid
// arguments.
type Operations map[string]func(context.Context) error

func of[A, T any](do func(context.Context, A) (T, error), a A) func(context.Context) error {
	return func(ctx context.Context) error { return assert.Err(do(ctx, a)) }
}

func ofTwo[A, B, T any](
	do func(context.Context, A, B) (T, error), a A, b B,
) func(context.Context) error {
	return func(ctx context.Context) error { return assert.Err(do(ctx, a, b)) }
}

func everyOperation(c catalog.Catalog, r catalog.Request) Operations {
	all := Writes(c, r)
	maps.Copy(all, Reads(c, r))
	maps.Copy(all, Operations{
		"PutFirst": func(ctx context.Context) error { return On(c).PutFirst(ctx, r.Session, r.TS) },
		"OldPings": of(c.OldPings, time.UnixMilli(0)),
		"Prune":    of(c.Prune, []catalog.OldPing{{Process: r.Process}}),
		"Prepare":  func(ctx context.Context) error { return assert.Err(c.Prepare(ctx)) },
		"Hello":    func(ctx context.Context) error { return assert.Err(c.Hello(ctx)) },
	})
	return all
}

// Writes returns the operations that write a single document.
func Writes(c catalog.Catalog, r catalog.Request) Operations {
	on, holder := On(c), catalog.Holder{Session: r.Session}
	return Operations{
		"Acquire":   of(on.Acquire, r),
		"Confirm":   of(on.Confirm, r),
		"SeedFence": ofTwo(on.SeedFence, r.Session, 1),
		"Enter":     ofTwo(on.Enter, r, catalog.Queue),
		"Leave":     of(on.Leave, r.Session),
		"Evict":     ofTwo(on.Evict, holder, "silent"),
		"GrantNext": of(on.GrantNext, "waited"),
		"RequestYield": func(ctx context.Context) error {
			return on.RequestYield(ctx, r.Name, "x", "y")
		},
		"Condemn": func(ctx context.Context) error {
			watched := &catalog.Ping{Seq: 1, HasSeq: true}
			return on.Condemn(ctx, r.Process, watched, catalog.Condemnation{})
		},
		"Ping":       of(c.Ping, beat(r.Process, 1)),
		"RemovePing": func(ctx context.Context) error { return on.RemovePing(ctx, r.Process) },
		"Break": func(ctx context.Context) error {
			return assert.Err(on.Break(ctx, catalog.Session{Name: r.Name}, 7, "x"))
		},
	}
}

// Reads returns the operations that read locks.
func Reads(c catalog.Catalog, r catalog.Request) Operations {
	names := []string{r.Name}
	list := func(waited bool) func(context.Context) error {
		return func(ctx context.Context) error {
			for _, err := range c.List(ctx, waited) {
				return err
			}
			return nil
		}
	}
	return Operations{
		"Look": func(ctx context.Context) error {
			return assert.Err(catalog.LookAt(ctx, c, r.Name))
		},
		"Read":      of(c.Read, r.Name),
		"Held":      of(c.Held, r.Process),
		"Snapshots": of(c.Snapshots, names),
		"HeldOrFree": func(ctx context.Context) error {
			return assert.Err(c.HeldOrFree(ctx, r.Process, names, nil))
		},
		"List": list(false), "Waiting": list(true),
	}
}
