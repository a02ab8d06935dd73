package catalog

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func (l *Lock) parseQueue(doc bson.Raw) *MalformedError {
	fail := func(field, problem string) *MalformedError {
		return &MalformedError{LocksCollection, l.Name, field, problem}
	}
	var bad *MalformedError
	if l.Waiters, bad = parseParticipants(l.Name, "waiters", doc.Lookup("waiters")); bad != nil {
		return bad
	}
	sharers, bad := parseParticipants(l.Name, "sharers", doc.Lookup("sharers"))
	if bad != nil {
		return bad
	}
	// A foreign manager writes the holder in the top-level fields and does not change the sharers. So
	// the sharers are valid only if the first one is the holder in the top-level fields.
	mode, ok := modeOf(doc.Lookup("mode"))
	several := ok && mode != Exclusive
	counts := l.Held && len(sharers) > 0 && sharers[0].TS == l.TS
	if l.State == stateOurs && !counts && (several || len(sharers) > 0) {
		return fail("sharers", "must begin with the holder that the other fields name")
	}
	if counts {
		if !several {
			return fail("mode", `must be "shared" or "permit" if there are sharers`)
		}
		limit := int32(0)
		if mode == Permit {
			if limit = limitOf(doc.Lookup("limit")); limit == 0 {
				return fail("limit", "must be the number of permits, at least 1")
			}
		}
		l.Mode, l.Limit, l.Sharers = mode, limit, sharers
		for i := range l.Sharers {
			l.Sharers[i].Mode, l.Sharers[i].Limit = mode, limit
		}
	}
	l.OldSharers = !counts && (several || len(sharers) > 0)
	if !l.Held && len(l.Waiters) > 0 { // a foreign manager freed the lock
		l.Limit = l.Waiters[0].Limit
	}
	if field := l.twice(); field != "" {
		return fail(field, "occurs twice")
	}
	text, _ := doc.Lookup("grants").StringValueOK()
	evidence, _ := doc.Lookup("evidence").StringValueOK()
	l.Grants = ParseGrants(l.Name, text, evidence)
	return nil
}

// twice returns the path of a session that occurs twice, or "".
func (l *Lock) twice() (field string) {
	if len(l.Sharers)+len(l.Waiters) == 0 {
		return ""
	}
	holders := l.Holders()
	seen := make(map[bson.ObjectID]bool, len(holders)+len(l.Waiters))
	for i, p := range slices.Concat(holders, l.Waiters) {
		switch {
		case !seen[p.TS]:
			seen[p.TS] = true
		case i < len(holders):
			return fmt.Sprintf("sharers.%d.ts", i)
		default:
			return fmt.Sprintf("waiters.%d.ts", i-len(holders))
		}
	}
	return ""
}

func modeOf(v bson.RawValue) (m Mode, ok bool) {
	if absent(v) {
		return Exclusive, true
	}
	text, ok := v.StringValueOK()
	m = Mode(text)
	return m, ok && (m == Exclusive || m == Shared || m == Permit)
}

func limitOf(v bson.RawValue) int32 {
	n, problem := integral(v)
	if problem != "" || n < 1 || n > math.MaxInt32 {
		return 0
	}
	return int32(n)
}

func parseParticipants(name, field string, v bson.RawValue) ([]Participant, *MalformedError) {
	if absent(v) {
		return nil, nil
	}
	fail := func(field, problem string) ([]Participant, *MalformedError) {
		return nil, &MalformedError{LocksCollection, name, field, problem}
	}
	list, ok := v.ArrayOK()
	if !ok {
		return fail(field, "must be an array, not "+describe(v))
	}
	values, err := list.Values()
	if err != nil {
		return fail(field, "cannot be read: the array is damaged")
	}
	participants := slices.Grow([]Participant(nil), len(values))
	for i, v := range values {
		at := field + "." + strconv.Itoa(i)
		raw, ok := v.DocumentOK()
		if !ok {
			return fail(at, "must be a document, not "+describe(v))
		}
		var p Participant
		if key, problem := p.parse(raw, field == "waiters"); problem != "" {
			return fail(at+"."+key, problem)
		}
		participants = append(participants, p)
	}
	return participants, nil // nil for an empty array
}

// parse parses one holder or waiter. Only a waiter has its own mode and limit.
func (p *Participant) parse(in bson.Raw, waits bool) (key, problem string) {
	var ok bool
	if p.TS, ok = in.Lookup("ts").ObjectIDOK(); !ok || p.TS.IsZero() {
		return "ts", "must be an ObjectId that is not zero, not " + describe(in.Lookup("ts"))
	}
	if p.Process, ok = in.Lookup("process").StringValueOK(); !ok || p.Process == "" {
		return "process", "must be a string that is not empty, not " + describe(in.Lookup("process"))
	}
	if waits {
		if p.Mode, ok = modeOf(in.Lookup("mode")); !ok {
			return "mode", `must be "", "shared" or "permit"`
		}
		if p.Mode == Permit {
			if p.Limit = limitOf(in.Lookup("limit")); p.Limit == 0 {
				return "limit", "must be the number of permits, at least 1"
			}
		}
	}
	p.Who, _ = in.Lookup("who").StringValueOK()
	p.Why, _ = in.Lookup("why").StringValueOK()
	p.Takeover = bounded(in.Lookup("takeoverMS"))
	if p.Since = date(in.Lookup("since")); p.Since.IsZero() {
		p.Since = date(in.Lookup("when"))
	}
	if fence, problem := integral(in.Lookup("fence")); problem == "" {
		p.Fence = fence
	}
	return "", ""
}

// ProcessesIn returns the process ids of the waiters in a lock document. If held is set, it also
// returns the process ids of the holders. The document may be malformed.
func ProcessesIn(doc bson.Raw, held bool) (named []string) {
	var values []bson.RawValue
	lists := []string{"waiters"}
	if held {
		values, lists = append(values, doc.Lookup("process")), append(lists, "sharers")
	}
	for _, field := range lists {
		list, _ := doc.Lookup(field).ArrayOK() // an invalid or damaged array has no participants
		participants, _ := list.Values()
		for _, p := range participants {
			element, _ := p.DocumentOK()
			values = append(values, element.Lookup("process"))
		}
	}
	for _, v := range values {
		if process, ok := v.StringValueOK(); ok {
			named = append(named, process)
		}
	}
	return named
}

// GrantLine returns one line of the field grants: session, fence and process id. The field is a
// string, because every change event contains a string as a whole, and because a filter can search
// a string for a process id. GrantLine replaces each line break in the process id by a space, so
// that a process id cannot contain the line of another grant.
func GrantLine(ts bson.ObjectID, fence int64, process string) string {
	return fmt.Sprintf("%s %d %s\n", ts.Hex(), fence, OneLine(process))
}

// OneLine returns a process id as [GrantLine] writes it: with spaces instead of line breaks.
func OneLine(process string) string { return strings.ReplaceAll(process, "\n", " ") }

// ParseGrants parses the field grants of a lock. It skips invalid lines. It stores the given
// evidence in each grant.
func ParseGrants(name, text, evidence string) []Grant {
	var grants []Grant
	for line := range strings.Lines(text) {
		hex, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		number, process, more := strings.Cut(rest, " ")
		ts, err := bson.ObjectIDFromHex(hex)
		fence, bad := strconv.ParseInt(number, 10, 64)
		if !ok || !more || err != nil || bad != nil {
			continue
		}
		grants = append(grants, Grant{
			Session: Session{Name: name, TS: ts}, Process: process, Fence: fence, Evidence: evidence,
		})
	}
	return grants
}

// parseYield parses the request to the holder to release the lock. It ignores a request that names
// another session than the holder's, and any request while the lock is shared.
func (l *Lock) parseYield(v bson.RawValue) {
	if !l.Held || len(l.Sharers) > 0 {
		return
	}
	in, _ := v.DocumentOK()
	if ts, ok := in.Lookup("ts").ObjectIDOK(); !ok || ts != l.TS {
		return
	}
	l.Yield.By, _ = in.Lookup("by").StringValueOK()
	l.Yield.Why, _ = in.Lookup("why").StringValueOK()
}
