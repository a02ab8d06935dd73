package catalog

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// MaxTakeover is the largest recorded takeover time, ping interval or lifetime. A larger value, or
// one that is not positive, is ignored.
const MaxTakeover = 7 * 24 * time.Hour

// stateOurs is the state that this package writes for a held lock.
const stateOurs = 1

// A Lock is a parsed document of the collection locks.
type Lock struct {
	Name    string
	Held    bool
	State   int64  // as stored: 0 free; 1 held; 2 held, written by mongos 2.0 and later
	Process string // empty when absent
	Who     string
	Why     string
	When    time.Time // zero when absent or unreadable; informational only
	TS      bson.ObjectID
	Fence   int64
	// Takeover is the holder's recorded takeover time; zero when absent or out of bounds. Foreign
	// managers leave the field unchanged, so it may hold the value of an earlier holder. It is
	// ignored in state 2, which MongoDB's own manager and mongos 2.0 and later write. mongos before
	// 2.0 wrote state 1, but does not work with the servers that this module supports.
	Takeover time.Duration
	// Mode and Limit are the holders' values. In a free lock Limit is the first waiter's.
	Mode  Mode
	Limit int32
	// Sharers are all holders of a lock in mode Shared or Permit. The fields above contain the
	// first sharer too. Sharers is empty for an exclusive holder.
	Sharers []Participant
	// OldSharers is set if the sharers, or a mode that needs sharers, are outdated: a manager that
	// does not know these fields left them there.
	OldSharers bool
	// Waiters is the queue, in order of arrival.
	Waiters []Participant
	// Yield asks the exclusive holder to release the lock. By is empty if there is no request.
	Yield YieldRequest
	// Grants are the result of the last transition that granted the lock, see [Grant].
	Grants []Grant
	// Leases are the holders' leases, see LeaseOf.
	Leases []Lease
}

// Session returns the session that holds, or last held, the lock.
func (l Lock) Session() Session { return Session{Name: l.Name, TS: l.TS} }

// A YieldRequest asks the holder of a lock to release it.
type YieldRequest struct {
	By  string // the requesting process
	Why string // its reason
}

// A Ping is a parsed document of the collection lockpings.
type Ping struct {
	Process string
	At      time.Time // field ping: the server's clock at the last ping
	Local   time.Time // the process's own clock at the last ping; zero when absent
	Seq     int64     // number of the ping, chosen by its process; see HasSeq
	// HasSeq is false for a foreign document, which a mongos or MongoDB's own manager wrote.
	HasSeq   bool
	Takeover time.Duration // zero when absent or out of bounds
	Interval time.Duration // zero when absent or out of bounds
	// Condemned is set when a contender declared the process dead.
	Condemned *Condemnation
	// Sight is the record of a contender that found no new ping of the process; zero if there is
	// none.
	Sight Sight
}

// ParseLock parses a document of locks. Every operation refuses a malformed document before it
// takes the lock. A document is malformed if it has one of these:
//
//   - a state that is not an int, long or double, or is negative or not integral;
//   - a fence or rev that is not an int or long, is negative, or is too large to be raised;
//   - in a held lock, a ts that is not an ObjectID or is all zero, or a process that is not a
//     string (it may be absent);
//   - sharers or waiters that are not arrays of documents with a ts and a process;
//   - a session that occurs twice;
//   - a waiter with an unknown mode, or one for a permit without a limit of at least 1;
//   - sharers that begin with the holder, but no mode, or mode permit and no limit;
//   - in state 1, which only this module writes, sharers that do not begin with the holder, or a
//     mode of sharers without sharers.
//
// Informational fields (when, who, why, takeoverMS, yield) and leases never make a document
// malformed. A free document needs only its state.
func ParseLock(raw bson.Raw) (Lock, *MalformedError) {
	var l Lock
	doc := fieldsOf(raw)
	id, bad := parseID(LocksCollection, raw, doc)
	if bad != nil {
		return l, bad
	}
	l.Name = id
	fail := func(field, format string, args ...any) (Lock, *MalformedError) {
		return Lock{}, &MalformedError{LocksCollection, id, field, fmt.Sprintf(format, args...)}
	}
	state, problem := integral(doc.lookup("state"))
	if problem != "" {
		return fail("state", "%s; 0 is free, 1 or 2 is held", problem)
	}
	if state < 0 {
		return fail("state", "is negative; 0 is free, 1 or 2 is held")
	}
	l.State, l.Held = state, state > 0

	if l.Fence, problem = counter(doc.lookup("fence"), l.Held); problem != "" {
		return fail("fence", "%s", problem)
	}
	if _, problem = counter(doc.lookup("rev"), l.Held); problem != "" {
		return fail("rev", "%s", problem)
	}
	v := doc.lookup("process")
	var ok bool
	if l.Process, ok = v.StringValueOK(); !ok && !absent(v) && l.Held {
		return fail("process", "must be a string, not %s", describe(v))
	}
	v = doc.lookup("ts")
	if l.TS, ok = v.ObjectIDOK(); l.Held && (!ok || l.TS.IsZero()) {
		return fail("ts", "of a held lock must be an ObjectId that is not zero, not %s", describe(v))
	}
	l.Who, _ = doc.lookup("who").StringValueOK()
	l.Why, _ = doc.lookup("why").StringValueOK()
	l.When = date(doc.lookup("when"))
	if l.State <= stateOurs {
		l.Takeover = bounded(doc.lookup("takeoverMS"))
	}
	if bad := l.parseQueue(doc); bad != nil {
		return Lock{}, bad
	}
	l.parseLeases(doc.lookup("leases"))
	l.parseYield(doc.lookup("yield"))
	return l, nil
}

// ParsePing parses a document of lockpings. ping must be a Date, and seq must be a whole number or
// absent. A document without seq is foreign, not malformed. The field condemned counts even if its
// type is wrong.
func ParsePing(raw bson.Raw) (Ping, *MalformedError) {
	var p Ping
	doc := fieldsOf(raw)
	id, bad := parseID(PingsCollection, raw, doc)
	if bad != nil {
		return p, bad
	}
	p.Process = id
	v := doc.lookup("ping")
	ms, ok := v.DateTimeOK()
	if !ok {
		return Ping{}, &MalformedError{PingsCollection, id, "ping", "must be a Date, not " + describe(v)}
	}
	p.At = time.UnixMilli(ms).UTC()
	if v = doc.lookup("seq"); v.Type != 0 {
		var problem string
		if p.Seq, problem = integral(v); problem != "" {
			return Ping{}, &MalformedError{PingsCollection, id, "seq", problem}
		}
		p.HasSeq = true
	}
	p.Local = date(doc.lookup("local"))
	p.Takeover = bounded(doc.lookup("takeoverMS"))
	p.Interval = bounded(doc.lookup("pingMS"))
	if v = doc.lookup("condemned"); v.Type != 0 {
		p.Condemned = &Condemnation{}
		if mark, ok := v.DocumentOK(); ok {
			in := fieldsOf(mark)
			p.Condemned.By, _ = in.lookup("by").StringValueOK()
			p.Condemned.Evidence, _ = in.lookup("evidence").StringValueOK()
			p.Condemned.At = date(in.lookup("at"))
		}
	}
	if seen, ok := doc.lookup("sight").DocumentOK(); ok {
		p.Sight = parseSight(fieldsOf(seen))
	}
	return p, nil
}

// parseSight parses the record of a contender; an invalid one yields the zero Sight.
func parseSight(doc fields) (s Sight) {
	seq, problem := integral(doc.lookup("seq"))
	by, _ := doc.lookup("by").StringValueOK()
	at, local := date(doc.lookup("at")), date(doc.lookup("local"))
	if problem != "" || at.IsZero() || local.IsZero() {
		return Sight{}
	}
	return Sight{Seq: seq, At: at, Local: local, By: by}
}

// Printable makes an untrusted string fit for a log line, an error or a terminal. It escapes
// control and direction characters and invalid bytes, and truncates the string to limit runes.
func Printable(s string, limit int) string {
	var b strings.Builder
	n := 0
	for i, r := range s {
		if n++; n > limit {
			b.WriteString("...")
			break
		}
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// BadText returns the problem with a string to be stored, of at most limit bytes, or "".
func BadText(s string, limit int) string {
	switch {
	case len(s) > limit:
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(s), limit)
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsRune(s, 0):
		return "contains a NUL byte"
	}
	return ""
}

func parseID(collection string, raw bson.Raw, doc fields) (string, *MalformedError) {
	if err := raw.Validate(); err != nil {
		return "", &MalformedError{collection, "", "_id", "cannot be read: the document is damaged"}
	}
	v := doc.lookup("_id")
	id, ok := v.StringValueOK()
	if !ok {
		return "", &MalformedError{collection, v.String(), "_id", "must be a string, not " + describe(v)}
	}
	return id, nil
}

type fields []bson.RawElement

func fieldsOf(raw bson.Raw) fields {
	elements, err := raw.Elements()
	if err != nil {
		return nil // a damaged document has no fields
	}
	return elements
}

// lookup returns the LAST element of that name, like the Go decoder, or the zero value.
func (f fields) lookup(key string) bson.RawValue {
	end := 1 + len(key) // an element has a type byte, the name, a zero byte and the value
	for _, e := range slices.Backward(f) {
		if len(e) > end && string(e[1:end]) == key && e[end] == 0 {
			return e.Value()
		}
	}
	return bson.RawValue{}
}

func absent(v bson.RawValue) bool {
	return v.Type == 0 || v.Type == bson.TypeNull || v.Type == bson.TypeUndefined
}

// integral reads a whole number from an int32, int64 or double. problem is empty on success.
func integral(v bson.RawValue) (n int64, problem string) {
	switch v.Type {
	case bson.TypeInt32:
		return int64(v.Int32()), ""
	case bson.TypeInt64:
		return v.Int64(), ""
	case bson.TypeDouble:
		f := v.Double()
		if f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			return 0, "must be a whole number, not " + describe(v)
		}
		return int64(f), ""
	default:
		return 0, "must be a whole number, not " + describe(v)
	}
}

// MaxCount is the largest valid fence and rev of a free lock. An acquisition raises both.
// MaxCountHeld is the limit for a held lock. It is so much larger that a holder can always release
// its lock.
const (
	MaxCount     = 1 << 62
	MaxCountHeld = MaxCount + 1<<61
)

// counter reads a fence or a rev. A missing one is 0.
func counter(v bson.RawValue, held bool) (n int64, problem string) {
	if v.Type == 0 {
		return 0, ""
	}
	most := int64(MaxCount)
	if held {
		most = MaxCountHeld
	}
	switch n, _ := v.AsInt64OK(); {
	case v.Type != bson.TypeInt32 && v.Type != bson.TypeInt64:
		return 0, "must be a whole number that is not negative, not " + describe(v)
	case n < 0:
		return 0, "must be a whole number that is not negative"
	case n > most:
		return 0, fmt.Sprintf("cannot be raised any more: it is above %d", most)
	default:
		return n, ""
	}
}

// bounded reads milliseconds between 1 and MaxTakeover. It returns zero for any other value.
func bounded(v bson.RawValue) time.Duration {
	ms, problem := integral(v)
	if problem != "" || ms < 1 || ms > MaxTakeover.Milliseconds() {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

func date(v bson.RawValue) time.Time {
	ms, ok := v.DateTimeOK()
	if !ok {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func describe(v bson.RawValue) string {
	if v.Type == 0 {
		return "missing"
	}
	return v.Type.String()
}

// Judge returns the result of ping b after it did not match raw, the ping document. raw is nil if
// there is no document. A nil error acknowledges b: a copy of the request was applied before. The
// local time distinguishes b from a twin's ping with the same number. The times in Mine distinguish
// an earlier ping of b's process from a twin's earlier ping.
//
// Judge does not report that the copy inserted the document. That is harmless, see package pinger.
func (b Heartbeat) Judge(raw bson.Raw) (Ping, error) {
	if raw == nil {
		return Ping{}, ErrNoMatch // removed meanwhile
	}
	p, bad := ParsePing(raw)
	switch _, unmarked := raw.LookupErr("condemned"); {
	case unmarked == nil && bad != nil:
		return Ping{}, &CondemnedError{Process: b.Process} // the mark counts without its fields
	case unmarked == nil:
		return Ping{}, &CondemnedError{Process: b.Process, Condemnation: *p.Condemned}
	case bad != nil:
		return Ping{}, bad
	case p.HasSeq && p.Seq < b.Seq && b.Follows(p.Local):
		return Ping{}, ErrNoMatch // changed meanwhile: the next ping matches
	case p.HasSeq && p.Seq == b.Seq && p.Local.UnixMilli() == b.Local.UnixMilli():
		return p, nil
	}
	return Ping{}, &TwinError{Process: b.Process, Sent: b.Seq, Found: p}
}

// Follows reports whether a ping with that local time may be an earlier ping of b's process: Mine
// is empty or contains the time.
func (b Heartbeat) Follows(local time.Time) bool {
	return len(b.Mine) == 0 || slices.ContainsFunc(b.Mine, func(mine time.Time) bool {
		return mine.UnixMilli() == local.UnixMilli()
	})
}
