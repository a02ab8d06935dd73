package rows_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

// Parse reports a claimed row as odd if no process can end or rescue the row.
func TestParse_HostileClaims_AreOdd(t *testing.T) {
	t.Parallel()
	list := bson.A{"claimed"}
	decimal, err := bson.ParseDecimal128("1")
	assert.Must(t, err)
	sound := func(part string, value any) bson.D {
		mark := bson.D{{Key: "state", Value: "claimed"}, {Key: "slot", Value: "claim:s"},
			{Key: "slotFence", Value: int64(1)}, {Key: "session", Value: bson.NewObjectID()},
			{Key: "batch", Value: bson.NewObjectID()}, {Key: "fence", Value: int64(1)},
			{Key: "attempts", Value: int64(1)}}
		for i := range mark {
			if mark[i].Key == part {
				mark[i].Value = value
				return mark
			}
		}
		return append(mark, bson.E{Key: part, Value: value})
	}
	for part, values := range map[string][]any{
		"none": nil, "state": {list, decimal, 1}, "slot": {list, decimal, "", "nope", nil}, "locks": {list, 5},
		"session": {list, decimal, nil}, "batch": {list, decimal, nil}, "fence": {list, decimal, -1, "x"},
		"attempts": {list, decimal, -5, nil, math.NaN()}, "slotFence": {list, decimal, 1e300, math.MaxInt64},
	} {
		for _, value := range values {
			raw, err := bson.Marshal(bson.D{{Key: "_id", Value: 1}, {Key: "claim",
				Value: sound(part, value)}})
			assert.Must(t, err)
			if _, bad := rows.Parse(raw, "claim"); bad == nil || bad.Field != "claim."+part {
				t.Errorf("%v: %v, want an odd %s", bson.Raw(raw), bad, part)
			}
		}
	}
	for _, claim := range []any{"mine", sound("x", 1)} {
		raw, err := bson.Marshal(bson.D{{Key: "_id", Value: "r"}, {Key: "claim", Value: claim}})
		assert.Must(t, err)
		if _, bad := rows.Parse(raw, "claim"); (bad != nil) != (claim == "mine") {
			t.Errorf("%v: %v", bson.Raw(raw), bad)
		}
	}
	raw, _ := bson.Marshal(bson.D{{Key: "_id", Value: 1}})
	if row, bad := rows.Parse(raw, "claim"); bad != nil || row.Mark.State != rows.Ready {
		t.Errorf("a row without the field: %+v, %v", row, bad)
	}
}

// Text cuts a long _id only between characters, so that a server accepts the text.
func TestText_Long_IsCutBetweenLetters(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("я", 150), "x" + strings.Repeat("я", 150)} {
		raw, err := bson.Marshal(bson.D{{Key: "_id", Value: text}})
		assert.Must(t, err)
		if text := rows.Text(bson.Raw(raw).Lookup("_id")); !utf8.ValidString(text) {
			t.Errorf("%q", text)
		}
	}
}

// Parse limits the number of attempts to the fence, even if another program has written a larger
// number.
func TestParse_AttemptsOfAnotherProgram_AreNotBelieved(t *testing.T) {
	t.Parallel()
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: 1}, {Key: "claim", Value: bson.D{
		{Key: "attempts", Value: int64(99)}, {Key: "fence", Value: int64(2)}}}})
	assert.Must(t, err)
	row, bad := rows.Parse(doc, "claim")
	if bad != nil {
		t.Fatal(bad)
	}
	assert.Equal(t, row.Mark.Attempts, 2, "%d attempts, want %d")
}

// If an element of a stored failure has a wrong type, Parse keeps the other elements.
func TestParse_FailureWithAWrongElement_KeepsTheRest(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_700_000_000_000).UTC()
	sound := bson.D{{Key: "attempt", Value: int64(2)}, {Key: "at", Value: at},
		{Key: "process", Value: "p"}, {Key: "error", Value: "boom"}}
	whole := rows.Failure{Attempt: 2, At: at, Process: "p", Error: "boom"}
	stored, want := bson.A{sound, "odd", bson.D{}}, []rows.Failure{whole, {}}
	for i := range sound {
		odd := slices.Clone(sound)
		odd[i].Value = bson.A{1}
		stored, want = append(stored, odd), append(want, whole)
	}
	want[2].Attempt, want[3].At, want[4].Process, want[5].Error = 0, time.Time{}, "", ""
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: 1}, {Key: "claim", Value: bson.D{
		{Key: "errors", Value: stored}}}})
	assert.Must(t, err)
	row, bad := rows.Parse(doc, "claim")
	if bad != nil || !slices.Equal(row.Mark.Failures, want) {
		t.Errorf("got  %+v, %v\nwant %+v", row.Mark.Failures, bad, want)
	}
}
