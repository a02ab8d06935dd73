package catalog_test

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

var ts = bson.ObjectID{0: 0x4d, 11: 0x5c}

func field(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

func marshal(t testing.TB, doc bson.D) bson.Raw {
	t.Helper()
	return assert.Value(bson.Marshal(doc))(t)
}

// lock returns a held lock document with one field set to value, or removed if value is missing{}.
func lock(key string, value any) bson.D {
	doc := bson.D{
		field("_id", "balancer"), field("state", int32(1)), field("process", "p"),
		field("ts", ts), field("fence", int64(7)),
	}
	return replace(doc, key, value)
}

func ping(key string, value any) bson.D {
	doc := bson.D{field("_id", "p"), field("ping", bson.DateTime(5)), field("seq", int64(3))}
	return replace(doc, key, value)
}

// missing is a value that removes a field.
type missing struct{}

func replace(doc bson.D, key string, value any) bson.D {
	var out bson.D
	found := false
	for _, e := range doc {
		if e.Key == key {
			found = true
			e.Value = value
		}
		if _, left := e.Value.(missing); !left {
			out = append(out, e)
		}
	}
	if _, left := value.(missing); !found && !left {
		out = append(out, field(key, value))
	}
	return out
}

func decimal(t *testing.T, text string) bson.Decimal128 {
	t.Helper()
	return assert.Value(bson.ParseDecimal128(text))(t)
}

func TestParseLock_State(t *testing.T) { // F1, F2
	t.Parallel()
	const free, held, malformed = "free", "held", "malformed"
	for _, c := range []struct {
		name  string
		value any
		want  string
	}{
		{"Int32Zero", int32(0), free},
		{"Int64Zero", int64(0), free},
		{"DoubleZero", 0.0, free},
		{"NegativeZero", math.Copysign(0, -1), free},
		{"One", int32(1), held},
		{"Two", int32(2), held},
		{"Three", int32(3), held},
		{"LongOne", int64(1), held},
		{"DoubleOne", 1.0, held},
		{"DoubleTwo", 2.0, held},
		{"Huge", int64(1) << 40, held},
		{"Missing", missing{}, malformed},
		{"Null", nil, malformed},
		{"Undefined", bson.Undefined{}, malformed},
		{"StringZero", "0", malformed},
		{"StringTwo", "2", malformed},
		{"Empty", "", malformed},
		{"True", true, malformed},
		{"False", false, malformed},
		{"Array", bson.A{}, malformed},
		{"ArrayOfZero", bson.A{int32(0)}, malformed},
		{"Document", bson.D{}, malformed},
		{"NaN", math.NaN(), malformed},
		{"Infinity", math.Inf(1), malformed},
		{"Fraction", 2.7, malformed},
		{"SmallFraction", 0.5, malformed},
		{"TooLargeADouble", 1e18, malformed},
		{"Negative", int32(-1), malformed},
		{"NegativeDouble", -2.0, malformed},
		{"DecimalTwo", decimal(t, "2"), malformed},
		{"DecimalZero", decimal(t, "0"), malformed},
		{"Date", bson.DateTime(0), malformed},
		{"Timestamp", bson.Timestamp{}, malformed},
		{"ObjectID", bson.NilObjectID, malformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, bad := catalog.ParseLock(marshal(t, lock("state", c.value)))
			got := free
			switch {
			case bad != nil:
				got = malformed
				wantField(t, bad, catalog.LocksCollection, "balancer", "state")
				if !reflect.DeepEqual(l, catalog.Lock{}) {
					t.Errorf("a malformed document gave %+v", l)
				}
			case l.Held:
				got = held
			}
			if got != c.want {
				t.Errorf("want %s, got %s: %+v, %v", c.want, got, l, bad)
			}
		})
	}
}

func wantField(t *testing.T, bad *catalog.MalformedError, collection, id, field string) {
	t.Helper()
	if bad == nil {
		t.Fatalf("want malformed %s %s", collection, field)
	}
	if bad.Collection != collection || bad.ID != id || bad.Field != field || bad.Problem == "" {
		t.Errorf("want %s %q %s, got %+v", collection, id, field, bad)
	}
}

func TestParseLock_FieldsOfAHeldLock(t *testing.T) { // F3, F4, F5, F8
	t.Parallel()
	for _, c := range []struct {
		name, key string
		value     any
		bad       bool // malformed when held
		badFree   bool // malformed when free
	}{
		{"TSMissing", "ts", missing{}, true, false},
		{"TSNull", "ts", nil, true, false},
		{"TSZero", "ts", bson.NilObjectID, true, false},
		{"TSHex", "ts", ts.Hex(), true, false},
		{"TSDate", "ts", bson.DateTime(5), true, false},
		{"TSBinary", "ts", bson.Binary{Data: ts[:]}, true, false},
		{"TSInt", "ts", int32(5), true, false},
		{"ProcessMissing", "process", missing{}, false, false},
		{"ProcessEmpty", "process", "", false, false},
		{"ProcessNull", "process", nil, false, false},
		{"ProcessNumber", "process", int32(5), true, false},
		{"ProcessDocument", "process", bson.D{}, true, false},
		{"ProcessLong", "process", strings.Repeat("p", 1<<20), false, false},
		{"FenceMissing", "fence", missing{}, false, false},
		{"FenceNull", "fence", nil, true, true},
		{"FenceInt32", "fence", int32(7), false, false},
		{"FenceHighest", "fence", int64(catalog.MaxCount), false, false},
		{"FenceAboveIt", "fence", int64(catalog.MaxCount) + 1, false, true},
		{"FenceLargest", "fence", int64(math.MaxInt64), true, true},
		{"RevMissing", "rev", missing{}, false, false},
		{"RevInt32", "rev", int32(7), false, false},
		{"RevHighest", "rev", int64(catalog.MaxCount), false, false},
		{"RevAboveIt", "rev", int64(catalog.MaxCount) + 1, false, true},
		{"RevLargest", "rev", int64(math.MaxInt64), true, true},
		{"RevNull", "rev", nil, true, true},
		{"RevString", "rev", "7", true, true},
		{"RevArray", "rev", bson.A{int64(7)}, true, true},
		{"RevDouble", "rev", 7.0, true, true},
		{"RevNegative", "rev", int64(-1), true, true},
		{"FenceString", "fence", "7", true, true},
		{"FenceDouble", "fence", 7.0, true, true},
		{"FenceFraction", "fence", 7.5, true, true},
		{"FenceNegative", "fence", int64(-1), true, true},
		{"FenceDecimal", "fence", decimal(t, "7"), true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			doc := lock(c.key, c.value)
			if _, bad := catalog.ParseLock(marshal(t, doc)); (bad != nil) != c.bad {
				t.Errorf("held: %v", bad)
			} else if bad != nil {
				wantField(t, bad, catalog.LocksCollection, "balancer", c.key)
			}
			l, bad := catalog.ParseLock(marshal(t, replace(doc, "state", int32(0))))
			if (bad != nil) != c.badFree {
				t.Errorf("free: %v", bad)
			}
			if l.Held {
				t.Error("a free lock is held")
			}
		})
	}
}

func TestParseLock_FenceMissing_IsZero(t *testing.T) { // F8
	t.Parallel()
	l, bad := catalog.ParseLock(marshal(t, lock("fence", missing{})))
	if bad != nil || l.Fence != 0 {
		t.Errorf("want 0, got %d, %v", l.Fence, bad)
	}
}

func TestParseLock_When_NeverMatters(t *testing.T) { // F6, A15
	t.Parallel()
	const year9999 = 253402300799999
	for _, c := range []struct {
		name  string
		value any
		want  time.Time
	}{
		{"Missing", missing{}, time.Time{}},
		{"String", "yesterday", time.Time{}},
		{"Timestamp", bson.Timestamp{T: 5}, time.Time{}},
		{"Int64", int64(5), time.Time{}},
		{"Null", nil, time.Time{}},
		{"Year1970", bson.DateTime(0), time.UnixMilli(0).UTC()},
		{"Year9999", bson.DateTime(year9999), time.UnixMilli(year9999).UTC()},
		{"Largest", bson.DateTime(math.MaxInt64), time.UnixMilli(math.MaxInt64).UTC()},
		{"Smallest", bson.DateTime(math.MinInt64), time.UnixMilli(math.MinInt64).UTC()},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, bad := catalog.ParseLock(marshal(t, lock("when", c.value)))
			if bad != nil || !l.When.Equal(c.want) || !l.Held {
				t.Errorf("want %v, got %+v, %v", c.want, l, bad)
			}
		})
	}
}

// The takeoverMS of a lock in state 2 is ignored: MongoDB's own manager keeps this module's old
// value.
func TestParseLock_TakeoverLeftByAnother_IsNobodys(t *testing.T) { // F19
	t.Parallel()
	for _, state := range []any{int32(2), int64(2), 2.0, int32(3)} {
		l, bad := catalog.ParseLock(marshal(t,
			replace(lock("takeoverMS", int64(900_000)), "state", state)))
		if bad != nil || !l.Held || l.Takeover != 0 || l.Holders()[0].Takeover != 0 {
			t.Errorf("state %v: %+v, %v", state, l, bad)
		}
	}
}

func TestParseLock_Takeover_IsBelievedInBounds(t *testing.T) { // F9
	t.Parallel()
	for _, c := range []struct {
		name  string
		value any
		want  time.Duration
	}{
		{"Long", int64(900_000), 15 * time.Minute},
		{"Int", int32(1000), time.Second},
		{"Double", 1000.0, time.Second},
		{"Largest", catalog.MaxTakeover.Milliseconds(), catalog.MaxTakeover},
		{"TooLarge", catalog.MaxTakeover.Milliseconds() + 1, 0},
		{"FarTooLarge", int64(1e18), 0},
		{"Zero", int64(0), 0},
		{"Negative", int64(-5), 0},
		{"String", "900000", 0},
		{"Fraction", 0.5, 0},
		{"Missing", missing{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, bad := catalog.ParseLock(marshal(t, lock("takeoverMS", c.value)))
			if bad != nil || l.Takeover != c.want {
				t.Errorf("want %v, got %v, %v", c.want, l.Takeover, bad)
			}
		})
	}
}

func TestParseLock_ID_MustBeAString(t *testing.T) { // F11
	t.Parallel()
	for _, id := range []any{int32(7), ts, bson.D{field("a", 1)}, nil, true} {
		_, bad := catalog.ParseLock(marshal(t, lock("_id", id)))
		if bad == nil || bad.Field != "_id" {
			t.Errorf("%v: %v", id, bad)
		}
	}
	if _, bad := catalog.ParseLock(marshal(t, lock("_id", missing{}))); bad == nil {
		t.Error("a document without _id was understood")
	}
}

func TestParseLock_ExtraFields_DuplicatesAndDepth(t *testing.T) { // F10
	t.Parallel()
	doc := lock("state", int32(0))
	doc = append(doc, field("state", int32(1)))
	if l, bad := catalog.ParseLock(marshal(t, doc)); bad != nil || !l.Held {
		t.Errorf("of two states the last counts: %+v, %v", l, bad)
	}
	deep := bson.D{}
	for range 100 {
		deep = bson.D{field("d", deep)}
	}
	if l, bad := catalog.ParseLock(marshal(t, lock("x", deep))); bad != nil || !l.Held {
		t.Errorf("%+v, %v", l, bad)
	}
}

func TestParsePing_Fields(t *testing.T) { // F15, F17
	t.Parallel()
	for _, c := range []struct {
		name, key string
		value     any
		bad       bool
		hasSeq    bool
	}{
		{"Whole", "seq", int64(3), false, true},
		{"PingMissing", "ping", missing{}, true, false},
		{"PingNull", "ping", nil, true, false},
		{"PingString", "ping", "now", true, false},
		{"PingTimestamp", "ping", bson.Timestamp{T: 5}, true, false},
		{"PingDouble", "ping", 5.0, true, false},
		{"PingLong", "ping", int64(5), true, false},
		{"SeqMissing", "seq", missing{}, false, false},
		{"SeqInt32", "seq", int32(3), false, true},
		{"SeqDouble", "seq", 3.0, false, true},
		{"SeqString", "seq", "3", true, false},
		{"SeqNull", "seq", nil, true, false},
		{"SeqFraction", "seq", 3.5, true, false},
		{"LocalString", "local", "x", false, true},
		{"IDNumber", "_id", int32(5), true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, bad := catalog.ParsePing(marshal(t, ping(c.key, c.value)))
			if (bad != nil) != c.bad || p.HasSeq != c.hasSeq {
				t.Fatalf("got %+v, %v", p, bad)
			}
			if bad != nil && (bad.Field != c.key || bad.Collection != catalog.PingsCollection) {
				t.Errorf("want %s, got %+v", c.key, bad)
			}
		})
	}
}

func TestParsePing_OfAnyTime(t *testing.T) { // F16, A15
	t.Parallel()
	for _, ms := range []int64{0, -1, 1 << 50, math.MaxInt64, math.MinInt64} {
		p, bad := catalog.ParsePing(marshal(t, ping("ping", bson.DateTime(ms))))
		if bad != nil || !p.At.Equal(time.UnixMilli(ms)) {
			t.Errorf("%d: %v, %v", ms, p.At, bad)
		}
	}
}

func TestParsePing_Condemned_OfAnyTypeCounts(t *testing.T) { // F18
	t.Parallel()
	for _, mark := range []any{true, false, nil, "x", int32(0), bson.D{}, bson.A{}} {
		p, bad := catalog.ParsePing(marshal(t, ping("condemned", mark)))
		if bad != nil || p.Condemned == nil || *p.Condemned != (catalog.Condemnation{}) {
			t.Errorf("%v: %+v, %v", mark, p.Condemned, bad)
		}
	}
	p, _ := catalog.ParsePing(marshal(t, ping("condemned", bson.D{
		field("by", "q"), field("at", bson.DateTime(5)), field("evidence", "silent"),
	})))
	want := catalog.Condemnation{By: "q", At: time.UnixMilli(5).UTC(), Evidence: "silent"}
	if p.Condemned == nil || *p.Condemned != want {
		t.Errorf("want %+v, got %+v", want, p.Condemned)
	}
	if p, _ := catalog.ParsePing(marshal(t, ping("x", 1))); p.Condemned != nil {
		t.Errorf("condemned out of nothing: %+v", p.Condemned)
	}
}

func TestMalformedError_Text_IsOneLine(t *testing.T) { // F7
	t.Parallel()
	doc := lock("_id", "a\nb\x1b[31m\u202e"+strings.Repeat("x", 1<<20))
	_, bad := catalog.ParseLock(marshal(t, replace(doc, "state", "x")))
	text := bad.Error()
	if strings.ContainsAny(text, "\n\x1b\u202e") || len(text) > 600 {
		t.Errorf("%d bytes: %.100q", len(text), text)
	}
}

func TestPrintable(t *testing.T) { // F7
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"plain", "plain"},
		{"two\nlines", `two\u000alines`},
		{"\x1b[31m", `\u001b[31m`},
		{"\xff", `\xff`},
		{"\ufffd", "\ufffd"},
		{"é🔒", "é🔒"},
		{"0123456789abc", "0123456789..."},
	} {
		if got := catalog.Printable(c.in, 10); got != c.want {
			t.Errorf("%q\nwant %s\ngot  %s", c.in, c.want, got)
		}
	}
}
