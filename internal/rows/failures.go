package rows

import (
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Failure is a failed attempt, as a row stores it.
type Failure struct {
	Attempt int64 // zero if unknown
	At      time.Time
	Process string // empty if the process died
	Error   string
}

// Bounds of the failures that a row keeps: their number and the bytes of their texts. With the last
// error they add about 10 KB at most to a row.
const (
	MostFailures = 10
	mostText     = 700
	mostProcess  = 200
)

// Failed returns the failures of a row with one more, at most the last MostFailures.
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

// stored returns a failure in its stored form.
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

// failuresOf returns the last failures in the field of a row. It skips failures that it cannot
// parse.
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

// DiedText is the error of an attempt whose process died.
const DiedText = "process died"

// Cancelled is the error of a row that was cancelled.
const Cancelled = "cancelled"
