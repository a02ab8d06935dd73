package rows_test

import (
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
	row := rows.Parse(doc, "claim")
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
	assert.Slices(t, rows.Parse(doc, "claim").Mark.Failures, want, "got  %+v\nwant %+v")
}
