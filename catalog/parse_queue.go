package catalog

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// parseQueue understands what our queue adds to a lock document.
func (l *Lock) parseQueue(doc fields) *MalformedError {
	var bad *MalformedError
	if l.Waiters, bad = parseParties(l.Name, "waiters", doc.lookup("waiters")); bad != nil {
		return bad
	}
	sharers, bad := parseParties(l.Name, "sharers", doc.lookup("sharers"))
	if bad != nil {
		return bad
	}
	mode, _ := doc.lookup("mode").StringValueOK()
	limit := limitOf(doc.lookup("limit"))
	// A manager that knows nothing of sharers writes the fields of one holder and leaves the rest:
	// the sharers count only while the first of them is the holder whom everybody sees.
	if l.Held && len(sharers) > 0 && sharers[0].TS == l.TS && shareable(Mode(mode)) {
		l.Mode, l.Sharers = Mode(mode), sharers
		for i := range l.Sharers {
			l.Sharers[i].Mode, l.Sharers[i].Limit = l.Mode, limit
		}
	}
	switch {
	case l.Mode == Permit:
		l.Limit = limit
	case !l.Held && len(l.Waiters) > 0: // left free by somebody who knows nothing of limits
		l.Limit = l.Waiters[0].Limit
	}
	text, _ := doc.lookup("grants").StringValueOK()
	evidence, _ := doc.lookup("evidence").StringValueOK()
	l.Awards = ParseAwards(l.Name, text, evidence)
	return nil
}

func shareable(m Mode) bool { return m == Shared || m == Permit }

func limitOf(v bson.RawValue) int32 {
	n, problem := integral(v)
	if problem != "" || n < 1 || n > math.MaxInt32 {
		return 0
	}
	return int32(n)
}

// parseParties understands an array of holders or waiters. Each needs a ts and a process.
func parseParties(name, field string, v bson.RawValue) ([]Party, *MalformedError) {
	if absent(v) {
		return nil, nil
	}
	fail := func(field, problem string) ([]Party, *MalformedError) {
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
	parties := make([]Party, 0, len(values))
	for i, v := range values {
		at := field + "." + strconv.Itoa(i)
		raw, ok := v.DocumentOK()
		if !ok {
			return fail(at, "must be a document, not "+describe(v))
		}
		in := fieldsOf(raw)
		var p Party
		if p.TS, ok = in.lookup("ts").ObjectIDOK(); !ok || p.TS.IsZero() {
			return fail(at+".ts", "must be an ObjectId that is not zero, not "+describe(in.lookup("ts")))
		}
		if p.Process, ok = in.lookup("process").StringValueOK(); !ok || p.Process == "" {
			return fail(at+".process", "must be a string that is not empty, not "+
				describe(in.lookup("process")))
		}
		p.complete(in)
		parties = append(parties, p)
	}
	if len(parties) == 0 {
		return nil, nil
	}
	return parties, nil
}

// complete fills in what only informs.
func (p *Party) complete(in fields) {
	p.Who, _ = in.lookup("who").StringValueOK()
	p.Why, _ = in.lookup("why").StringValueOK()
	mode, _ := in.lookup("mode").StringValueOK()
	if p.Mode = Mode(mode); !shareable(p.Mode) {
		p.Mode = Exclusive
	}
	p.Limit = limitOf(in.lookup("limit"))
	p.Takeover = bounded(in.lookup("takeoverMS"))
	if p.Since = date(in.lookup("since")); p.Since.IsZero() {
		p.Since = date(in.lookup("when"))
	}
	if fence, problem := integral(in.lookup("fence")); problem == "" {
		p.Fence = fence
	}
	if holds, ok := in.lookup("holds").ArrayOK(); ok {
		values, _ := holds.Values() // damaged: nothing is known
		for _, v := range values {
			if ts, ok := v.ObjectIDOK(); ok {
				p.Holds = append(p.Holds, ts)
			}
		}
	}
}

// AwardLine is one line of the field grants: session, fence and process. The field is a text, not an
// array, so that every shape of change event brings it whole and a filter can find a process in it.
func AwardLine(ts bson.ObjectID, fence int64, process string) string {
	return fmt.Sprintf("%s %d %s\n", ts.Hex(), fence, process)
}

// ParseAwards understands the field grants of a lock. Lines that are none of ours are left out.
func ParseAwards(name, text, evidence string) []Award {
	var awards []Award
	for line := range strings.Lines(text) {
		hex, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		number, process, more := strings.Cut(rest, " ")
		ts, err := bson.ObjectIDFromHex(hex)
		fence, bad := strconv.ParseInt(number, 10, 64)
		if !ok || !more || err != nil || bad != nil {
			continue
		}
		awards = append(awards, Award{
			Session: Session{Name: name, TS: ts}, Process: process, Fence: fence, Evidence: evidence,
		})
	}
	return awards
}
