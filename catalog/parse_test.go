package catalog_test

import (
	"math"
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

// lock returns the document of a held lock and sets one of its fields. The value missing{} removes
// the field.
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

func TestParseLock_When_NeverMatters(t *testing.T) { // F6, A15
	t.Parallel()
	for _, value := range []any{missing{}, "yesterday", bson.Timestamp{T: 5}, int64(5), nil} {
		l, bad := catalog.ParseLock(marshal(t, lock("when", value)))
		if bad != nil || !l.When.IsZero() || !l.Held {
			t.Errorf("%v: %+v, %v", value, l, bad)
		}
	}
	for _, ms := range []int64{0, 253402300799999, math.MaxInt64, math.MinInt64} {
		l, bad := catalog.ParseLock(marshal(t, lock("when", bson.DateTime(ms))))
		if bad != nil || !l.When.Equal(time.UnixMilli(ms)) || !l.Held {
			t.Errorf("%d: %+v, %v", ms, l, bad)
		}
	}
}

// If state is 2 or more, ParseLock ignores takeoverMS. MongoDB's own lock manager does not write
// takeoverMS, so the value is from an earlier holder.
func TestParseLock_TakeoverOfAnEarlierHolder_IsIgnored(t *testing.T) { // F19
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
	most := catalog.MaxTakeover.Milliseconds()
	for value, want := range map[any]time.Duration{
		int64(900_000): 15 * time.Minute, int32(1000): time.Second, 1000.0: time.Second,
		most: catalog.MaxTakeover, most + 1: 0, int64(1e18): 0, int64(0): 0, int64(-5): 0,
		"900000": 0, 0.5: 0, missing{}: 0,
	} {
		l, bad := catalog.ParseLock(marshal(t, lock("takeoverMS", value)))
		if bad != nil || l.Takeover != want {
			t.Errorf("%v: want %v, got %v, %v", value, want, l.Takeover, bad)
		}
	}
}

func TestParseLock_ExtraFields_DuplicatesAndDepth(t *testing.T) { // F10
	t.Parallel()
	doc := lock("state", int32(0))
	doc = append(doc, field("state", int32(1)))
	if l, bad := catalog.ParseLock(marshal(t, doc)); bad != nil || l.Held {
		t.Errorf("of two states the first counts: %+v, %v", l, bad)
	}
	deep := bson.D{}
	for range 100 {
		deep = bson.D{field("d", deep)}
	}
	if l, bad := catalog.ParseLock(marshal(t, lock("x", deep))); bad != nil || !l.Held {
		t.Errorf("%+v, %v", l, bad)
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
