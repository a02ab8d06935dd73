package catalogtest

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

var holderCases = []testCase{
	{"Release_ChangesStateAndRevOnly", func(b *bench) {
		g := request("balancer", alice)
		b.acquire(g)
		assert.Must(b, b.release(g.Session))
		b.wantDocument(b.document("locks", "balancer"),
			with(acquired(g, 1, 2), field("state", int32(0))))
	}},
	{"Release_KeepsForeignFields", func(b *bench) { // F10
		ts := bson.NewObjectID()
		deep := bson.D{field("end", true)}
		for range 60 {
			deep = bson.D{field("d", deep)}
		}
		doc := bson.D{
			field("_id", "balancer"), field("state", int64(2)), field("ts", ts),
			field("waiters", int32(5)), field("deep", deep),
			field("who", 7), field("when", "yesterday"),
		}
		b.insert("locks", doc)
		err := b.release(catalog.Session{Name: "balancer", TS: ts})
		assert.Must(b, err)
		b.wantDocument(b.document("locks", "balancer"),
			with(doc, field("state", int32(0)), field("rev", int64(1))))
	}},
	{"SeedFence_RaisesAndNeverLowers", func(b *bench) {
		g := request("balancer", alice)
		b.acquire(g)
		steps := []struct{ atLeast, want int64 }{{100, 100}, {50, 100}, {100, 100}, {101, 101}}
		for _, step := range steps {
			l, err := On(b.Catalog).SeedFence(b.ctx, g.Session, step.atLeast)
			if err != nil || l.Fence != step.want {
				b.Fatalf("at least %d: want %d, got %d, %v", step.atLeast, step.want, l.Fence, err)
			}
		}
		b.wantDocument(b.document("locks", "balancer"), acquired(g, 101, 5))
	}},
	{"Read_OfNoDocument_IsNotFound", func(b *bench) {
		_, err := b.Catalog.Read(b.ctx, "balancer")
		b.wantErr(err, catalog.ErrNotFound)
	}},
	{"Held_ReturnsTheSessionsOfOneProcess", func(b *bench) {
		g := request("b", alice)
		b.acquire(g)
		h := request("a", alice)
		b.acquire(h)
		b.acquire(request("c", bob))
		gone := request("d", alice)
		b.acquire(gone)
		assert.Must(b, b.release(gone.Session))
		want := []catalog.HeldSession{{Session: h.Session}, {Session: g.Session}}
		b.wantHeld(alice, want)
		b.wantHeld("nobody", nil)
	}},
	{"ErrorsNameOperationAndLock", func(b *bench) {
		err := b.release(request("bal\"ancer", alice).Session)
		const want = `release "bal\"ancer": document is not as expected`
		if err == nil || err.Error() != want {
			b.Errorf("text\nwant %s\ngot  %v", want, err)
		}
		assert.Is(b, err, catalog.ErrNoMatch)
	}},
}

func (b *bench) wantHeld(process string, want []catalog.HeldSession) {
	b.Helper()
	got := assert.Value(b.Catalog.Held(b.ctx, process))(b)
	if !slices.Equal(got, want) {
		b.Errorf("held by %s\nwant %+v\ngot  %+v", process, want, got)
	}
}

// ago returns the server's clock minus d.
func (b *bench) ago(d time.Duration) time.Time {
	b.Helper()
	s := assert.Value(b.Catalog.Hello(b.ctx))(b)
	if s.Time.IsZero() {
		return b.ping("clock").At.Add(-d)
	}
	return s.Time.Add(-d)
}
