package catalog

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Bounds of a [Note]: a ping document travels with every look at a lock that its process stands in.
const (
	maxNoted      = 64   // waiters
	maxNotedHolds = 1000 // sessions that they hold, all together
	maxNotedText  = 100  // runes of who and why
)

// A Note says who of a process waits for a lock and stands in no lock document, because the line is
// full or because it waits for a transaction, and holds something meanwhile. It stands in the ping
// document of the process, where those who search for deadlocks see it. It is no sign of life: a
// ping is.
type Note struct {
	// Number counts the notes of a process: 1, 2, 3 and so on. So others can tell that a waiter
	// stood there between two looks at it, and not only before the first.
	Number    int64
	Outsiders []Outsider
}

// An Outsider is one who waits outside of the document of a lock. Its session is known to its
// process alone.
type Outsider struct {
	Lock string
	Participant
}

// noteKey is the field of a ping document.
const noteKey = "outside"

// Update is what writes a note into a ping document, or, if nobody waits outside, removes the old
// one: the first outsiders, as many as there is room for.
func (n Note) Update() PingUpdate {
	if len(n.Outsiders) == 0 {
		return PingUpdate{Unset: []string{noteKey}}
	}
	list := bson.A{}
	noted, _ := Noted(n.Outsiders)
	for _, o := range noted {
		d := bson.D{
			{Key: "lock", Value: o.Lock}, {Key: "ts", Value: o.TS},
			{Key: "who", Value: Printable(o.Who, maxNotedText)},
			{Key: "why", Value: Printable(o.Why, maxNotedText)},
			{Key: "since", Value: bson.NewDateTimeFromTime(o.Since)}, {Key: "holds", Value: o.Holds},
		}
		if o.Mode != Exclusive {
			d = append(d, bson.E{Key: "mode", Value: string(o.Mode)})
		}
		if o.Limit > 0 {
			d = append(d, bson.E{Key: "limit", Value: o.Limit})
		}
		list = append(list, d)
	}
	return PingUpdate{Set: bson.D{{Key: noteKey, Value: bson.D{
		{Key: "number", Value: n.Number}, {Key: "waiters", Value: list},
	}}}}
}

// Noted divides outsiders into those for whom a note has room, the first of them first, and the
// others.
func Noted(all []Outsider) (noted, left []Outsider) {
	room := maxNotedHolds
	for _, o := range all {
		if len(noted) == maxNoted || len(o.Holds) > room {
			left = append(left, o)
			continue
		}
		room -= len(o.Holds)
		noted = append(noted, o)
	}
	return noted, left
}

// parseNote reads a note; nil when there is none, or none that can be understood. A waiter that
// cannot be is left out.
func parseNote(process string, v bson.RawValue) *Note {
	doc, ok := v.DocumentOK()
	if !ok {
		return nil
	}
	in := fieldsOf(doc)
	n := &Note{}
	if n.Number, ok = in.lookup("number").AsInt64OK(); !ok || n.Number < 1 {
		return nil
	}
	list, _ := in.lookup("waiters").ArrayOK()
	values, _ := list.Values()
	for _, v := range values {
		d, _ := v.DocumentOK()
		f := fieldsOf(d)
		o := Outsider{Participant: Participant{Process: process}}
		o.Lock, _ = f.lookup("lock").StringValueOK()
		o.TS, ok = f.lookup("ts").ObjectIDOK()
		if !ok || o.Lock == "" {
			continue
		}
		mode, _ := f.lookup("mode").StringValueOK()
		o.Mode = Mode(mode)
		o.Limit, _ = f.lookup("limit").Int32OK()
		o.complete(f)
		n.Outsiders = append(n.Outsiders, o)
	}
	return n
}

// NotedSince is the time at which an outsider came, as a note can hold it.
func NotedSince(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }
