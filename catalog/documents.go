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

// MaxTakeover is the largest valid takeover time, ping interval and lifetime of a lease. A stored
// value that is larger, zero or negative counts as absent.
const MaxTakeover = 7 * 24 * time.Hour

// stateOurs is the state that this module writes for a held lock.
const stateOurs = 1

// A Lock is a parsed document of the collection locks.
type Lock struct {
	Name    string
	Held    bool
	State   int64  // as stored: 0 free; 1 held; 2 held, written by mongos 2.0 and later
	Process string // empty when absent
	Who     string
	Why     string
	When    time.Time // the last acquisition; zero if absent or not a Date
	TS      bson.ObjectID
	Fence   int64
	// Takeover is the holder's takeover time. It is zero if the field is absent or out of bounds. It
	// is also zero in state 2: MongoDB's own manager and mongos 2.0 and later write state 2 without
	// changing the field, so the stored value may be an earlier holder's. A mongos before 2.0 wrote
	// state 1, but such a mongos does not work with any server that this module supports.
	Takeover time.Duration
	// Mode and Limit are the mode and the limit of the holders. If the lock is free and has waiters,
	// Limit is the limit of the first waiter.
	Mode  Mode
	Limit int32
	// Sharers contains all holders of a lock in mode Shared or Permit. Process, Who, Why, When, TS and
	// Takeover describe the first sharer. For an exclusive holder, Sharers is empty.
	Sharers []Participant
	// OldSharers is set if the fields sharers and mode do not describe the present holder. That is so
	// after a foreign manager has acquired or released the lock, because it does not know these fields
	// and leaves them unchanged.
	OldSharers bool
	// Waiters is the queue. The first waiter is the next holder.
	Waiters []Participant
	// Yield is a request to the exclusive holder to release the lock. If there is no request, Yield is
	// zero.
	Yield YieldRequest
	// Grants contains the grants of the last transition that granted the lock.
	Grants []Grant
	// Leases contains the leases of the holders, see LeaseOf.
	Leases []Lease
}

// Session returns the session of the holder. If the lock is free, it returns the session of the
// last holder.
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
	// HasSeq is false for a document of a mongos or of MongoDB's own lock manager.
	HasSeq   bool
	Takeover time.Duration // zero when absent or out of bounds
	Interval time.Duration // zero when absent or out of bounds
	// Condemned is set if a contender declared the process dead.
	Condemned *Condemnation
	// Sight is the record of a contender that found no new ping of the process. If there is no record,
	// Sight is zero.
	Sight Sight
}

// ParseLock parses a document of the collection locks. If a field occurs twice, the first one
// counts, as in a filter of the server. No operation acquires a lock with a malformed document. A
// document is malformed if it is not valid BSON, or has one of these faults:
//
//   - an _id that is not a string;
//   - a state that is not an int, long or double;
//   - a state that is negative or not a whole number;
//   - a fence or rev that is not an int or long, is negative, or is too large to be raised
//     (both may be absent);
//   - in a held lock, a ts that is not an ObjectID or is all zero;
//   - in a held lock, a process that is not a string (it may be absent);
//   - a field sharers or waiters that is not an array of documents with a ts and a process
//     (both fields may be absent);
//   - a session that occurs twice among the holders and waiters;
//   - a waiter with an unknown mode;
//   - a waiter for a permit with a limit of less than 1;
//   - in a held lock whose first sharer has the ts of the document, a mode other than shared
//     and permit, or mode permit with a limit of less than 1;
//   - in state 1, a first sharer with another ts than the document;
//   - in state 1, mode shared or permit without sharers.
//
// The fields when, who, why, takeoverMS, yield, leases, grants and evidence may have any value. A
// free lock needs only the _id and the state.
func ParseLock(doc bson.Raw) (Lock, *MalformedError) {
	var l Lock
	id, bad := parseID(LocksCollection, doc)
	if bad != nil {
		return l, bad
	}
	l.Name = id
	fail := func(field, format string, args ...any) (Lock, *MalformedError) {
		return Lock{}, &MalformedError{LocksCollection, id, field, fmt.Sprintf(format, args...)}
	}
	state, problem := integral(doc.Lookup("state"))
	if problem != "" {
		return fail("state", "%s; 0 is free, 1 or 2 is held", problem)
	}
	if state < 0 {
		return fail("state", "is negative; 0 is free, 1 or 2 is held")
	}
	l.State, l.Held = state, state > 0

	if l.Fence, problem = counter(doc.Lookup("fence"), l.Held); problem != "" {
		return fail("fence", "%s", problem)
	}
	if _, problem = counter(doc.Lookup("rev"), l.Held); problem != "" {
		return fail("rev", "%s", problem)
	}
	v := doc.Lookup("process")
	var ok bool
	if l.Process, ok = v.StringValueOK(); !ok && !absent(v) && l.Held {
		return fail("process", "must be a string, not %s", describe(v))
	}
	v = doc.Lookup("ts")
	if l.TS, ok = v.ObjectIDOK(); l.Held && (!ok || l.TS.IsZero()) {
		return fail("ts", "of a held lock must be an ObjectId that is not zero, not %s", describe(v))
	}
	l.Who, _ = doc.Lookup("who").StringValueOK()
	l.Why, _ = doc.Lookup("why").StringValueOK()
	l.When = date(doc.Lookup("when"))
	if l.State <= stateOurs {
		l.Takeover = bounded(doc.Lookup("takeoverMS"))
	}
	if bad := l.parseQueue(doc); bad != nil {
		return Lock{}, bad
	}
	if leases := doc.Lookup("leases"); !absent(leases) {
		l.parseLeases(leases)
	}
	if yield := doc.Lookup("yield"); !absent(yield) {
		l.parseYield(yield)
	}
	return l, nil
}

// ParsePing parses a document of the collection lockpings. The field ping must be a Date. The field
// seq must be a whole number or absent. A document without seq is foreign, and not malformed. If
// the field condemned exists, the process is condemned, regardless of the type.
func ParsePing(doc bson.Raw) (Ping, *MalformedError) {
	var p Ping
	id, bad := parseID(PingsCollection, doc)
	if bad != nil {
		return p, bad
	}
	p.Process = id
	v := doc.Lookup("ping")
	ms, ok := v.DateTimeOK()
	if !ok {
		return Ping{}, &MalformedError{PingsCollection, id, "ping", "must be a Date, not " + describe(v)}
	}
	p.At = time.UnixMilli(ms).UTC()
	if v = doc.Lookup("seq"); v.Type != 0 {
		var problem string
		if p.Seq, problem = integral(v); problem != "" {
			return Ping{}, &MalformedError{PingsCollection, id, "seq", problem}
		}
		p.HasSeq = true
	}
	p.Local = date(doc.Lookup("local"))
	p.Takeover = bounded(doc.Lookup("takeoverMS"))
	p.Interval = bounded(doc.Lookup("pingMS"))
	if v = doc.Lookup("condemned"); v.Type != 0 {
		p.Condemned = &Condemnation{}
		mark, _ := v.DocumentOK()
		p.Condemned.By, _ = mark.Lookup("by").StringValueOK()
		p.Condemned.Evidence, _ = mark.Lookup("evidence").StringValueOK()
		p.Condemned.At = date(mark.Lookup("at"))
	}
	if seen, ok := doc.Lookup("sight").DocumentOK(); ok {
		p.Sight = parseSight(seen)
	}
	return p, nil
}

func parseSight(doc bson.Raw) (s Sight) {
	seq, problem := integral(doc.Lookup("seq"))
	by, _ := doc.Lookup("by").StringValueOK()
	at, local := date(doc.Lookup("at")), date(doc.Lookup("local"))
	if problem != "" || at.IsZero() || local.IsZero() {
		return Sight{}
	}
	return Sight{Seq: seq, At: at, Local: local, By: by}
}

// Printable makes an untrusted string safe for a log line, an error or a terminal. It escapes
// control characters, characters that change the writing direction, and invalid bytes. It truncates
// the string to limit runes.
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

// BadText returns the reason why a string cannot be stored, or "" if it can be stored. The string
// must be valid UTF-8 without a NUL byte, of at most limit bytes.
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

func parseID(collection string, doc bson.Raw) (string, *MalformedError) {
	if err := doc.Validate(); err != nil {
		return "", &MalformedError{collection, "", "_id", "cannot be read: the document is damaged"}
	}
	v := doc.Lookup("_id")
	id, ok := v.StringValueOK()
	if !ok {
		return "", &MalformedError{collection, v.String(), "_id", "must be a string, not " + describe(v)}
	}
	return id, nil
}

func absent(v bson.RawValue) bool {
	return v.Type == 0 || v.Type == bson.TypeNull || v.Type == bson.TypeUndefined
}

func integral(v bson.RawValue) (n int64, problem string) {
	switch v.Type {
	case bson.TypeInt32:
		return int64(v.Int32()), ""
	case bson.TypeInt64:
		return v.Int64(), ""
	case bson.TypeDouble:
		if f := v.Double(); f == math.Trunc(f) && math.Abs(f) <= 1<<53 {
			return int64(f), ""
		}
	}
	return 0, "must be a whole number, not " + describe(v)
}

// MaxCount is the largest valid fence and the largest valid rev of a free lock. An acquisition
// raises both. MaxCountHeld is the limit for a held lock. It is larger than MaxCount, so that a
// holder can always release its lock.
const (
	MaxCount     = 1 << 62
	MaxCountHeld = MaxCount + 1<<61
)

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

// bounded converts a number of milliseconds to a duration. It returns zero for an invalid number,
// and for a duration that is not between 1 ms and MaxTakeover.
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

// Judge returns the result of ping b if the ping did not match a document. The argument raw is the
// ping document of the process, or nil if there is none. If the document already contains ping b,
// because the server received the command twice, the error is nil.
//
// Judge compares numbers and local times. A twin is another process with the same id. A ping of a
// twin may have the same number as b, but it has another local time. Mine contains the local time
// of an earlier ping of this process, and not the local time of a twin's ping.
//
// If the server received the command twice, Judge cannot report whether the first copy inserted the
// document. Package pinger explains why that is harmless.
func (b Heartbeat) Judge(raw bson.Raw) (Ping, error) {
	if raw == nil {
		return Ping{}, ErrNoMatch // the document was removed meanwhile
	}
	p, bad := ParsePing(raw)
	switch _, unmarked := raw.LookupErr("condemned"); {
	case unmarked == nil && bad != nil:
		return Ping{}, &CondemnedError{Process: b.Process} // with unknown details
	case unmarked == nil:
		return Ping{}, &CondemnedError{Process: b.Process, Condemnation: *p.Condemned}
	case bad != nil:
		return Ping{}, bad
	case p.HasSeq && p.Seq < b.Seq && b.Follows(p.Local):
		return Ping{}, ErrNoMatch // the document changed meanwhile; the next ping matches
	case p.HasSeq && p.Seq == b.Seq && p.Local.UnixMilli() == b.Local.UnixMilli():
		return p, nil
	}
	return Ping{}, &TwinError{Process: b.Process, Sent: b.Seq, Found: p}
}

// Follows reports whether an earlier ping of the same process may have written the given local
// time. It returns true if Mine is empty or contains the time.
func (b Heartbeat) Follows(local time.Time) bool {
	return len(b.Mine) == 0 || slices.ContainsFunc(b.Mine, func(mine time.Time) bool {
		return mine.UnixMilli() == local.UnixMilli()
	})
}
