package catalogtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// noon is when the first event of a case happened.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// happened is the n-th event of a case.
func happened(name string, n int) catalog.HistoryEntry {
	return catalog.HistoryEntry{
		ID: bson.NewObjectID(), At: noon.Add(time.Duration(n) * time.Minute), Kind: "acquired",
		Session: catalog.Session{Name: name, TS: bson.NewObjectID()}, Process: alice, Fence: int64(n) + 1,
	}
}

func (b *bench) append(entries ...catalog.HistoryEntry) {
	b.Helper()
	assert.Must(b, b.Catalog.AppendHistory(b.ctx, entries), "append")
}

// history reads what is there, and the ids of what cannot be understood.
func (b *bench) history(q catalog.HistoryQuery) (entries []catalog.HistoryEntry, bad []string) {
	b.Helper()
	for e, err := range b.Catalog.ReadHistory(b.ctx, q) {
		var malformed *catalog.MalformedError
		switch {
		case errors.As(err, &malformed) && malformed.Collection == catalog.HistoryCollection:
			bad = append(bad, malformed.Field)
		case err != nil:
			b.Fatalf("read: %v", err)
		default:
			entries = append(entries, e)
		}
	}
	return entries, bad
}

func (b *bench) wantHistory(q catalog.HistoryQuery, want ...catalog.HistoryEntry) {
	b.Helper()
	if got, malformed := b.history(q); !slices.Equal(want, got) || len(malformed) > 0 {
		b.Errorf("history of %+v\nwant %v\ngot  %v %q", q, want, got, malformed)
	}
}

// prune keeps what happened since noon plus that many minutes, and the latest most of it.
func (b *bench) prune(since, most, want int) {
	b.Helper()
	n, err := b.Catalog.PruneHistory(b.ctx, noon.Add(time.Duration(since)*time.Minute), most)
	if err != nil || n != want {
		b.Errorf("pruned %d, %v; want %d", n, err, want)
	}
}

var historyCases = []testCase{
	{"Nothing_IsEmpty", func(b *bench) {
		b.wantHistory(catalog.HistoryQuery{})
		b.wantHistory(catalog.HistoryQuery{Name: "a", Since: noon, Limit: 3})
		b.append()
		b.prune(0, 10, 0)
	}},
	{"Entry_ComesBackWhole", func(b *bench) {
		e := happened("a", 0)
		e.Mode, e.Label, e.Why, e.Previous = catalog.Permit, "main", "$x.y", bob
		e.Rule, e.Evidence, e.Cause = "watch", "silent for 1h", "<script>\n"
		e.Waited, e.Held, e.Missed = 1500*time.Millisecond, time.Hour, 7
		b.append(e)
		b.wantHistory(catalog.HistoryQuery{}, e)
	}},
	{"SameEntryTwice_IsThereOnceAsItWas", func(b *bench) {
		first, second, third := happened("a", 0), happened("a", 1), happened("a", 2)
		b.append(first, second)
		again := second
		again.At = again.At.Add(time.Second)
		b.append(again, third)
		b.wantHistory(catalog.HistoryQuery{}, third, second, first)
	}},
	{"Read_NewestFirst_ByNameSinceAndLimit", func(b *bench) {
		a0, a1, b2, a3 := happened("a", 0), happened("a", 1), happened("b", 2), happened("a", 3)
		tie := happened("a", 3)
		b.append(b2, a0)
		b.append(a3, a1, tie)
		b.wantHistory(catalog.HistoryQuery{}, tie, a3, b2, a1, a0)
		b.wantHistory(catalog.HistoryQuery{Name: "a"}, tie, a3, a1, a0)
		b.wantHistory(catalog.HistoryQuery{Since: b2.At}, tie, a3, b2)
		b.wantHistory(catalog.HistoryQuery{Name: "a", Since: a1.At, Limit: 2}, tie, a3)
		b.wantHistory(catalog.HistoryQuery{Limit: 1}, tie)
		b.wantHistory(catalog.HistoryQuery{Name: "c"})
	}},
	{"Read_NamesWhatIsMalformedAndGoesOn", func(b *bench) {
		at := field("at", bson.NewDateTimeFromTime(noon))
		b.insert("lockhistory", bson.D{field("_id", "x"), at, field("kind", 7)})
		b.insert("lockhistory", bson.D{field("_id", "y"), field("kind", "lost")})
		b.insert("lockhistory", bson.D{field("_id", "z"), at,
			field("kind", "new one"), field("fence", "7"), field("heldMS", -1.5), field("name", true)})
		got, malformed := b.history(catalog.HistoryQuery{})
		if len(got) != 1 || got[0] != (catalog.HistoryEntry{At: noon, Kind: "new one"}) {
			b.Errorf("understood: %v", got)
		}
		if slices.Sort(malformed); !slices.Equal(malformed, []string{"at", "kind"}) {
			b.Errorf("malformed: %q", malformed)
		}
	}},
	{"Prune_TakesTheOldAndTheOldestOfTooMany", func(b *bench) {
		var entries []catalog.HistoryEntry
		for n := range 6 {
			entries = append(entries, happened("a", n))
		}
		same := happened("a", 3) // as old as the fourth, and later
		b.append(append(entries, same)...)
		b.prune(2, 100, 2)
		b.wantHistory(catalog.HistoryQuery{}, entries[5], entries[4], same, entries[3], entries[2])
		b.prune(0, 3, 2)
		b.wantHistory(catalog.HistoryQuery{}, entries[5], entries[4], same)
		b.prune(0, 3, 0)
	}},
	{"Prune_OldestIsAnArrayOfDates_Stays", func(b *bench) {
		assert.Must(b, b.Insert(b.ctx, catalog.HistoryCollection, bson.D{
			field("_id", "odd"), field("at", bson.A{noon}),
		}))
		b.append(happened("a", 1))
		b.prune(-1, 100, 0)
	}},
	{"Append_MoreThanOneCommandTakes", func(b *bench) {
		var entries []catalog.HistoryEntry
		for n := range 1001 {
			entries = append(entries, happened("a", n))
		}
		b.append(entries...)
		got, _ := b.history(catalog.HistoryQuery{})
		if slices.Reverse(got); !slices.Equal(got, entries) {
			b.Errorf("%d of %d came back", len(got), len(entries))
		}
	}},
	{"Prepare_AnyNumberOfTimes", func(b *bench) {
		const keep = 20 * 365 * 24 * time.Hour // the index stays: other cases keep their entries
		for range 2 {
			warnings, err := b.Catalog.PrepareHistory(b.ctx, keep)
			if err != nil || len(warnings) > 0 {
				b.Fatalf("%q, %v", warnings, err)
			}
		}
		e := happened("a", 0)
		b.append(e)
		b.wantHistory(catalog.HistoryQuery{}, e)
	}},
	{"LocksAndPings_StayAsTheyAre", func(b *bench) {
		b.ping(alice)
		b.acquire(request("a", alice))
		b.wantUntouched("locks", "a", func() {
			b.wantUntouched("lockpings", alice, func() {
				b.append(happened("a", 0))
				b.prune(100, 1, 1)
			})
		})
	}},
}

// ofHistory are the operations on the history, to be called with an ended context.
func ofHistory(c Kept) Operations {
	return Operations{
		"PrepareHistory": of(c.PrepareHistory, time.Hour),
		"AppendHistory": func(ctx context.Context) error {
			return c.AppendHistory(ctx, []catalog.HistoryEntry{happened("a", 0)})
		},
		"PruneHistory": ofTwo(c.PruneHistory, noon, 1),
		"ReadHistory": func(ctx context.Context) error {
			for _, err := range c.ReadHistory(ctx, catalog.HistoryQuery{}) {
				return err
			}
			return nil
		},
	}
}
