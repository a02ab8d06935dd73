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

// MaxTakeover is the largest valid takeover time, ping interval and lifetime of a lease. A larger
// value is ignored, and so is a value that is not positive.
const MaxTakeover = 7 * 24 * time.Hour

// stateOurs is the state of a lock that this package holds.
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
	// managers leave the field unchanged, so it may be from an earlier holder. It is therefore
	// ignored in state 2, which MongoDB's own manager and mongos 2.0 and later write. A mongos
	// before 2.0 wrote state 1, but no server that this module supports works with it.
	Takeover time.Duration
	// Mode and Limit are those of the holders. In a free lock Limit is the first waiter's.
	Mode  Mode
	Limit int32
	// Sharers are all holders of a lock in mode Shared or Permit. The fields above describe the
	// first sharer. Sharers is empty for an exclusive holder.
	Sharers []Participant
	// OldSharers is set if the document has outdated sharers, or an outdated mode. A foreign
	// manager, which does not know these fields, did not remove them.
	OldSharers bool
	// Waiters is the queue, in order of arrival.
	Waiters []Participant
	// Yield is a request to the exclusive holder to release the lock. By is empty if there is no
	// request.
	Yield YieldRequest
	// Grants are the grants of the last transition that granted the lock, see [Grant].
	Grants []Grant
	// Leases are the holders' leases, see LeaseOf.
	Leases []Lease
}

// Session returns the session of the holder. For a free lock it returns the session of the last
// holder.
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
	// HasSeq is false for a foreign document, written by a mongos or by MongoDB's own manager.
	HasSeq   bool
	Takeover time.Duration // zero when absent or out of bounds
	Interval time.Duration // zero when absent or out of bounds
	// Condemned is set when a contender declared the process dead.
	Condemned *Condemnation
	// Sight is the record of a contender that found no new ping of the process. It is zero if there
	// is no record.
	Sight Sight
}

// ParseLock parses a document of locks. No operation acquires a lock with a malformed document. A
// document is malformed if it has one of these:
//
//   - a state that is not an int, long or double;
//   - a state that is negative or not integral;
//   - a fence or rev that is not an int or long, is negative, or is too large to be raised;
//   - in a held lock, a ts that is not an ObjectID or is all zero;
//   - in a held lock, a process that is not a string (it may be absent);
//   - a field sharers or waiters that is not an array of documents with a ts and a process;
//   - a session that occurs twice;
//   - a waiter with an unknown mode, or a waiter for a permit whose limit is not at least 1;
//   - sharers that begin with the holder, although the mode is neither shared nor permit;
//   - sharers that begin with the holder in mode permit, although the limit is not at least 1;
//   - in state 1, which only this module writes, sharers that do not begin with the holder;
//   - in state 1, mode shared or permit without sharers.
//
// The fields when, who, why, takeoverMS, yield and leases may have any value. In a free lock only
// the state must exist.
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
	if leases := doc.lookup("leases"); !absent(leases) {
		l.parseLeases(leases)
	}
	if yield := doc.lookup("yield"); !absent(yield) {
		l.parseYield(yield)
	}
	return l, nil
}

// ParsePing parses a document of lockpings. The field ping must be a Date. The field seq must be a
// whole number or absent. A document without seq is foreign, not malformed. A process is condemned
// if the field condemned exists, whatever its type.
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

// parseSight parses the record of a contender. For an invalid record it returns the zero Sight.
func parseSight(doc fields) (s Sight) {
	seq, problem := integral(doc.lookup("seq"))
	by, _ := doc.lookup("by").StringValueOK()
	at, local := date(doc.lookup("at")), date(doc.lookup("local"))
	if problem != "" || at.IsZero() || local.IsZero() {
		return Sight{}
	}
	return Sight{Seq: seq, At: at, Local: local, By: by}
}

// Printable converts an untrusted string for a log line, an error or a terminal. It escapes control
// characters, direction characters and invalid bytes. It truncates the string to limit runes.
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

// BadText returns the problem with a string that is to be stored, or "" if there is none. The
// string may have at most limit bytes.
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

// lookup returns the LAST element with the given name, like the Go decoder. It returns the zero
// value if there is none.
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

// integral returns the whole number in an int32, int64 or double. problem is empty on success.
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
// MaxCountHeld is the limit for a held lock. It is larger, so that every holder can release its
// lock.
const (
	MaxCount     = 1 << 62
	MaxCountHeld = MaxCount + 1<<61
)

// counter returns a fence or a rev; 0 if it is missing.
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

// bounded converts a number of milliseconds to a duration. It returns zero for a duration of less
// than 1 ms or more than MaxTakeover, and for a value that is not a whole number.
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

// Judge returns the result of ping b, whose filter did not match. raw is the process's ping
// document, nil if there is none. A nil error means that the document already has ping b: the
// server received the command twice.
//
// A twin's ping may have the same number as b, but not the same local time. An earlier ping of this
// process has a local time in Mine, and an earlier ping of a twin does not.
//
// Judge does not report whether the first copy of the command inserted the document. Package pinger
// explains why that is harmless.
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

// Follows reports whether an earlier ping of b's process may have the given local time. That is so
// if Mine is empty or contains the time.
func (b Heartbeat) Follows(local time.Time) bool {
	return len(b.Mine) == 0 || slices.ContainsFunc(b.Mine, func(mine time.Time) bool {
		return mine.UnixMilli() == local.UnixMilli()
	})
}
