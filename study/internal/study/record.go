package study

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Play is one case played by one generation.
type Play struct {
	Case       string
	Generation string
	Title      string // title of the generation, or of the release that plays in its place
	Outcome    Outcome
	Missed     []string // accidents of the case that did not happen
	Record
}

// A Record is the log of one simulation.
type Record struct {
	Processes []Process
	Bars      []Bar
	Marks     []Mark
	Versions  []Version
}

// A Process is a simulated process. Clock is the error of its clock, if any.
type Process struct{ Name, Clock string }

// A Bar is a period in the life of a process, which the page draws as a bar.
type Bar struct {
	Process     int
	Kind        string // one of barKinds; "two" if another process held the lock, too
	From, Until time.Duration
}

func (b Bar) covers(at time.Duration) bool { return b.From <= at && at < b.Until }

// A Mark is an event of a play.
type Mark struct {
	At      time.Duration
	Process int    // -1 for the server, an operator, or a document
	Kind    string // empty for a document
	Text    string // for a command, its name
	Sent    string // for a command that writes documents, its match and its change
	Answer  string
	Changed bool   // the command has changed a document
	Struck  bool   // an accident of the case has struck the command
	Source  string // line of the server's source; empty for this module
	// Count is the number of equal pings or polls that this mark represents. Until is the time of the
	// last ping or poll.
	Count int
	Until time.Duration

	// [Play.Rows] sets these fields. Quiet marks a successful ping or poll, which does not affect the
	// outcome. Decides marks the step that the verdict names.
	Quiet, Decides bool
}

// A Version is the content of a document from an instant on. If Fields is empty, the document was
// deleted.
type Version struct {
	At         time.Duration
	Collection string
	ID         string
	By         int // process that changed it; -1 for the operator
	Fields     []Field
}

// A Field is a field of a document, formatted as text.
type Field struct{ Name, Value string }

// record collects the events of a play. Only the event loop of the world uses it, except for the
// method mark.
type record struct {
	w        *world
	versions map[string]map[string]bson.Raw // last documents, by collection and _id
	words    map[string]string              // replacements of ObjectIDs

	changed []Mark // changes of documents

	mu   sync.Mutex // guards the rest
	out  Record
	same map[string]int // index of the mark for commands of one kind and answer
}

func (r *record) index(p *process) int {
	if p == nil {
		return -1
	}
	return p.Index
}

// A mark is added to the record. The event loop of the world may call this method, and so may a
// goroutine that an event has woken.
func (r *record) mark(p *process, kind, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.same = nil
	r.out.Marks = append(r.out.Marks,
		Mark{At: r.w.Now(), Process: r.index(p), Kind: kind, Text: r.plain(text)})
}

// span adds a bar to a process. If an earlier bar of the same kind ends where the new bar begins,
// span extends the earlier bar instead.
func (r *record) span(p *process, kind string, from, until time.Duration) {
	for i, b := range r.out.Bars {
		if b.Process == p.Index && b.Kind == kind && b.Until == from {
			r.out.Bars[i].Until = until
			return
		}
	}
	r.out.Bars = append(r.out.Bars, Bar{Process: p.Index, Kind: kind, From: from, Until: until})
}

// note records the figures of a decision, as mongos logged them in an old generation. The first
// word of format is the kind of the note.
func (p line) note(format string, args ...any) {
	kind, _, _ := strings.Cut(format, " ")
	p.w.record.count(p.name+p.source+format, Mark{At: p.w.Now(), Process: p.Index, Kind: kind,
		Text: fmt.Sprintf(format, args...), Source: p.source})
}

// The call records a decision of a contender that compares two times of one clock: the present
// time, and the time at the beginning of the watch.
func (p line) decides(now, was time.Time, limit time.Duration, force bool) {
	format := "%s - %s = %s unchanged, within %s"
	if force {
		format = "%s - %s = %s unchanged, over %s: forces"
	}
	p.note(format, value(date(now)), value(date(was)), Span(max(0, now.Sub(was))), Span(limit))
}

func (r *record) exchange(c *command, err error) {
	if c.kind == Write {
		return
	}
	answer, struck := brief(err), ""
	if err == nil && c.answer != nil {
		answer = c.answer()
	}
	if c.struck.what != "" {
		struck = " [" + string(c.struck.what) + "]"
	}
	m := Mark{At: c.sent, Process: c.p.Index, Kind: string(c.kind), Text: c.op,
		Answer: answer + struck, Changed: c.changed, Struck: struck != "", Source: c.source}
	if c.kind.writes() && c.kind != Ping {
		m.Sent = c.text
	}
	if now := r.w.Now(); now-c.sent > s { // a slow answer gets its own mark
		m.Answer, m.Changed = "sent"+struck, false
		r.count(fmt.Sprint(now, c.p.name), m)
		m.At, m.Answer, m.Changed = now, "answered: "+answer, c.changed
	}
	// The key has no digits, because times and sessions differ between polls.
	r.count(c.p.name+string(c.kind)+digits.ReplaceAllString(c.op+m.Answer, ""), m)
}

// count adds a mark. If the key is known, count only increments the counter of the mark with this
// key, because there are thousands of polls. A call of the method mark, or a change of a lock
// document, clears all keys.
func (r *record) count(key string, m Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i, known := r.same[key]; known {
		r.out.Marks[i].Count++
		r.out.Marks[i].Until = m.At
		return
	}
	if r.same == nil {
		r.same = map[string]int{}
	}
	r.same[key] = len(r.out.Marks)
	m.Count, m.Text, m.Sent, m.Answer = 1, r.plain(m.Text), r.plain(m.Sent), r.plain(m.Answer)
	r.out.Marks = append(r.out.Marks, m)
}

// changes records all changes of documents since the previous call. The given process made the
// changes, or an operator if it is nil. The result reports whether any document has changed.
func (r *record) changes(by *process) bool {
	before := len(r.out.Versions)
	for _, collection := range []string{locks, pings} {
		there := map[string]bson.Raw{}
		for _, raw := range r.w.Server.Documents(collection) {
			id, _ := raw.Lookup("_id").StringValueOK()
			there[id] = raw
		}
		was := r.versions[collection]
		all := maps.Clone(there)
		maps.Copy(all, was)
		for _, id := range slices.Sorted(maps.Keys(all)) {
			if !bytes.Equal(was[id], there[id]) {
				r.version(by, collection, id, was[id], there[id])
			}
		}
		r.versions[collection] = there
	}
	return len(r.out.Versions) > before
}

func (r *record) version(by *process, collection, id string, was, raw bson.Raw) {
	v := Version{At: r.w.Now(), Collection: collection, ID: r.plain(id), By: r.index(by),
		Fields: r.fields(raw)}
	r.out.Versions = append(r.out.Versions, v)
	text := changes(r.fields(was), v.Fields)
	switch {
	case collection == locks:
		r.same = nil
		if id == r.w.lock {
			r.w.judge.reads(parse(raw))
		}
	case raw == nil:
		text = "ping of " + owner(v.ID) + " is removed"
	case was != nil && strings.Contains(text, "condemned"):
		text = "ping of " + owner(v.ID) + ": condemned"
	default:
		return
	}
	r.changed = append(r.changed, Mark{At: v.At, Process: -1, Text: text})
}

func (r *record) fields(raw bson.Raw) (all []Field) {
	for _, e := range parse(raw) {
		all = append(all, Field{e.Key, r.plain(value(e.Value))})
	}
	return all
}

func value(v any) string {
	switch v := v.(type) {
	case bson.DateTime:
		return v.Time().UTC().Format("15:04:05.000")
	case bson.ObjectID:
		return v.Hex()
	case string:
		return v
	case bson.D:
		var parts []string
		for _, e := range v {
			parts = append(parts, e.Key+": "+value(e.Value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case bson.A:
		var parts []string
		for _, e := range v {
			parts = append(parts, value(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(v)
}

func (r *record) brief(d document) string {
	switch {
	case d == nil:
		return "none"
	case d.value("ping") != nil:
		return "ping " + value(d.value("ping"))
	case d.state() == 0:
		return "state 0"
	}
	return fmt.Sprintf("state %d, %s", d.state(), owner(d.text("process")))
}

// owner returns the letter of the process with this process id, such as A.
func owner(id string) string {
	host, _, more := strings.Cut(strings.TrimPrefix(id, "shard-"), ":")
	if more || len(host) == 1 {
		return strings.ToUpper(host)
	}
	return host
}

func (r *record) state(kind Kind) string {
	if kind == Ping || kind == Clean || kind == Clock {
		return "done"
	}
	return r.brief(append(r.w.read(locks, byID(r.w.lock)), nil)[0])
}

var (
	objectIDs  = regexp.MustCompile(`\b[0-9a-f]{24}\b`)
	ourProcess = regexp.MustCompile(`\b([a-z]+):\d+:(\d+):[0-9a-f]{8}-[0-9a-f-]{27}`)
	digits     = regexp.MustCompile(`\d`)
	ourLabel   = regexp.MustCompile(`:[0-9a-f]{8}\b`)
)

// plain replaces the random parts of process ids and sessions by fixed words. It replaces ObjectIDs
// by ts-1, ts-2 and so on, in the order in which they appear.
func (r *record) plain(s string) string {
	s = ourProcess.ReplaceAllString(s, "$1:pid:$2:uuid")
	s = objectIDs.ReplaceAllStringFunc(s, func(id string) string {
		if id == strings.Repeat("0", len(id)) {
			return "zeros"
		}
		if r.words[id] == "" {
			r.words[id] = fmt.Sprintf("ts-%d", len(r.words)+1)
		}
		return r.words[id]
	})
	return ourLabel.ReplaceAllString(s, ":random")
}

// result returns all events, sorted by time.
func (r *record) result() Record {
	for _, p := range r.w.processes {
		r.out.Processes = append(r.out.Processes, Process{p.name, p.wrongClock()})
	}
	slices.SortStableFunc(r.out.Bars, func(a, b Bar) int {
		return slices.Index(barKinds, a.Kind) - slices.Index(barKinds, b.Kind)
	})
	r.out.Marks = append(r.out.Marks, r.changed...)
	slices.SortStableFunc(r.out.Marks, func(a, b Mark) int { return int(a.At - b.At) })
	return r.out
}

func (p *process) wrongClock() string {
	switch ahead := p.now().Sub(p.w.True()); {
	case p.stands:
		return "stopped since " + p.now().Format("15:04")
	case ahead > 0:
		return Span(ahead) + " ahead"
	case ahead < 0:
		return Span(-ahead) + " behind"
	}
	return ""
}

// Span formats a duration, rounded to a precision that depends on its length.
func Span(d time.Duration) string {
	unit := ms
	switch {
	case d >= 24*h:
		return fmt.Sprintf("%dd", d.Round(24*h)/(24*h))
	case d >= h:
		unit = m
	case d >= m:
		unit = s
	case d >= 100*ms:
		unit = 100 * ms
	}
	text := d.Round(unit).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}
