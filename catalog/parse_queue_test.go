package catalog_test

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"mongodlm/catalog"
)

var ts2 = bson.ObjectID{0: 0x4d, 11: 0x5d}

// participant returns an element of waiters or sharers and sets one of its fields. The value
// missing{} removes the field.
func participant(key string, value any) bson.D {
	return replace(bson.D{
		field("ts", ts2), field("process", "q"), field("who", "q:1"), field("why", "because"),
		field("takeoverMS", int64(60_000)), field("mode", "permit"), field("limit", int32(3)),
		field("since", bson.DateTime(5)), field("holds", bson.A{ts}),
	}, key, value)
}

func TestParseLock_Waiter_FieldsAreUnderstood(t *testing.T) {
	t.Parallel()
	whole := catalog.Participant{
		TS: ts2, Process: "q", Who: "q:1", Why: "because", Mode: catalog.Permit, Limit: 3,
		Takeover: time.Minute, Since: time.UnixMilli(5).UTC(),
	}
	exclusive := func(p *catalog.Participant) { p.Mode, p.Limit = catalog.Exclusive, 0 }
	shared := func(p *catalog.Participant) { p.Mode, p.Limit = catalog.Shared, 0 }
	for _, c := range []struct {
		name, key string
		value     any
		change    func(p *catalog.Participant)
	}{
		{"Whole", "why", "because", func(*catalog.Participant) {}},
		{"WhoOfAnotherType", "who", 5, func(p *catalog.Participant) { p.Who = "" }},
		{"ModeMissing", "mode", missing{}, exclusive},
		{"ModeNull", "mode", nil, exclusive},
		{"ModeShared", "mode", "shared", shared},
		{"LimitLong", "limit", int64(3), func(*catalog.Participant) {}},
		{"LimitDouble", "limit", 3.0, func(*catalog.Participant) {}},
		{"TakeoverText", "takeoverMS", "x", func(p *catalog.Participant) { p.Takeover = 0 }},
		{"SinceText", "since", "x", func(p *catalog.Participant) { p.Since = time.Time{} }},
		{"FenceText", "fence", "x", func(*catalog.Participant) {}},
		{"Fence", "fence", int64(9), func(p *catalog.Participant) { p.Fence = 9 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, bad := catalog.ParseLock(marshal(t, lock("waiters", bson.A{participant(c.key, c.value)})))
			want := whole
			c.change(&want)
			if bad != nil || len(l.Waiters) != 1 || !reflect.DeepEqual(l.Waiters[0], want) {
				t.Errorf("waiter\nwant %+v\ngot  %+v, %v", want, l.Waiters, bad)
			}
		})
	}
}

// SnapshotOf reads the ping of a process once, even if the process has several sessions in the
// queue.
func TestSnapshotOf_CallersOfOneProcess_ItsPingIsReadOnce(t *testing.T) {
	t.Parallel()
	waits := func(session byte) bson.D { return participant("ts", bson.ObjectID{session}) }
	doc := lock("waiters", bson.A{participant("x", 1), waits(1), waits(2)})
	asked := map[string]int{}
	snapshot := catalog.SnapshotOf(marshal(t, doc), func(process string) catalog.PingState {
		asked[process]++
		return catalog.PingState{}
	})
	once := map[string]int{"q": 1, snapshot.Lock.Process: 1}
	if len(snapshot.Pings) != 2 || !maps.Equal(asked, once) {
		t.Errorf("read the pings of %v, got %v", asked, snapshot.Pings)
	}
}

func TestParseGrants_LinesOfOthers_AreLeftOut(t *testing.T) {
	t.Parallel()
	hex := ts.Hex()
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"Empty", "", 0}, {"One", hex + " 7 p\n", 1}, {"NoNewline", hex + " 7 p", 1},
		{"EmptyProcess", hex + " 7 \n", 1}, {"NoProcess", hex + " 7\n", 0}, {"Bare", hex + "\n", 0},
		{"NoFence", hex + "  p\n", 0}, {"FenceText", hex + " x p\n", 0},
		{"FenceTooLarge", hex + " 9223372036854775808 p\n", 0},
		{"NegativeFence", hex + " -7 p\n", 1}, {"ShortHex", hex[1:] + " 7 p\n", 0},
		{"NoHex", strings.Repeat("x", 24) + " 7 p\n", 0}, {"BlankLines", "\n\n" + hex + " 7 p\n\n", 1},
		{"BadThenGood", "x\n" + hex + " 7 p\n" + hex + " 8 q\n", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := catalog.ParseGrants("balancer", c.text, ""); len(got) != c.want {
				t.Errorf("want %d, got %+v", c.want, got)
			}
		})
	}
}

// GrantLine encodes a grant as one line of text, even if the process id contains line breaks.
func TestGrantLine_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var want []catalog.Grant
		var text strings.Builder
		for i := range rapid.IntRange(0, 4).Draw(t, "grants") {
			a := catalog.Grant{
				Session:  catalog.Session{Name: "balancer", TS: bson.ObjectID{0: 7, 11: byte(i)}},
				Fence:    rapid.Int64Range(0, math.MaxInt64).Draw(t, "fence"),
				Process:  rapid.StringMatching(`(.|\n)*`).Draw(t, "process"),
				Evidence: "silent",
			}
			text.WriteString(catalog.GrantLine(a.TS, a.Fence, a.Process))
			a.Process = catalog.OneLine(a.Process)
			want = append(want, a)
		}
		if got := catalog.ParseGrants("balancer", text.String(), "silent"); !slices.Equal(want, got) {
			t.Fatalf("grants\nwant %q\ngot  %q", fmt.Sprint(want), fmt.Sprint(got))
		}
	})
}
