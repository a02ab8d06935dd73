package rows

import (
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Failure is an attempt that did not end well, as a row keeps it.
type Failure struct {
	Attempt int64 // zero where a rescue did not know it
	At      time.Time
	Process string // empty where a rescue did not know it
	Error   string
}

// So many failures are kept, the last ones, and so many bytes of their texts: with its last error a
// row grows by about 10 KB at most.
const (
	MostFailures = 10
	mostText     = 700
	mostProcess  = 200
)

// Failed are the failures of a row and one more.
func Failed(before []Failure, one Failure) []Failure {
	one.Error, one.Process = cut(one.Error, mostText), cut(one.Process, mostProcess)
	all := append(before[:len(before):len(before)], one)
	return all[max(0, len(all)-MostFailures):]
}

func cut(text string, most int) string {
	if text = strings.ToValidUTF8(text, "?"); len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// stored is a failure as a document has it.
func (f Failure) stored() bson.D {
	d := bson.D{}
	if f.Attempt > 0 {
		d = append(d, e("attempt", f.Attempt))
	}
	d = append(d, e("at", f.At))
	if f.Process != "" {
		d = append(d, e("process", f.Process))
	}
	return append(d, e("error", f.Error))
}

func storedAll(list []Failure) bson.A {
	all := bson.A{}
	for _, f := range list {
		all = append(all, f.stored())
	}
	return all
}

// failuresOf reads what it understands of the failures in the field of a row.
func failuresOf(in bson.Raw) (list []Failure) {
	array, _ := in.Lookup("errors").ArrayOK()
	values, _ := array.Values()
	for _, v := range values {
		one, ok := v.DocumentOK()
		if !ok {
			continue
		}
		var f Failure
		f.Attempt, _ = one.Lookup("attempt").AsInt64OK()
		at, _ := one.Lookup("at").TimeOK()
		f.At = at.UTC()
		f.Process, _ = one.Lookup("process").StringValueOK()
		f.Error, _ = one.Lookup("error").StringValueOK()
		list = append(list, f)
	}
	return list[max(0, len(list)-MostFailures):]
}

// Why a row was taken from the process that had claimed it.
const (
	GoneProcess = "the process that had claimed it died, or lost its lock"
	goneLease   = "its lease ended"
)

// Expired is the error of a row whose lease ended too often.
const Expired = goneLease + " at the last attempt"

// GivenUp is the error of a row that was lost too often.
const GivenUp = GoneProcess + ", at the last attempt"

// Expired are the failures of a row whose lease has ended.
func (r Row) Expired(now time.Time) []Failure {
	return Failed(r.Mark.Failures, Failure{Attempt: r.Mark.Attempts, At: now, Error: goneLease})
}

// noRoom is said of rows that have so many failures that a rescue, which cannot drop the first one,
// adds none.
func (m *Mongo) noRoom() bson.E {
	return m.e("errors.9", d("$exists", true))
}

// pushing adds a failure to an update of many rows.
func (m *Mongo) pushing(update bson.D, at time.Time, text string) bson.D {
	return append(update, e("$push", bson.D{m.e("errors", Failure{At: at, Error: text}.stored())}))
}
