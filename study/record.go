package main

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

	Processes []string // names
	Bars      []Bar
	Marks     []Mark // sorted by time
	Lock      []Version
}

// A Bar is a period in the life of a process, which the page draws as a bar.
type Bar struct {
	Process     int
	Kind        string // one of barKinds; "two" if another process held the lock, too
	From, Until time.Duration
}

// A Mark is an event of a play.
type Mark struct {
	At      time.Duration
	Process int    // -1 for the server, an operator, or a document
	Kind    string // empty for a document
	Text    string
	Sent    string // for a command that writes documents, its match and its change
	Quiet   bool   // a successful ping or poll, which does not affect the outcome
	Weight  int    // 2 if an accident of the case has struck the command, 1 if a document has changed
	Source  string // line of the server's source; empty for this module
	// Count is the number of equal pings or polls that this mark represents. Until is the time of the
	// last ping or poll.
	Count int
	Until time.Duration
}

// text returns the text of a mark with the number of pings or polls that it represents.
func (m Mark) text() string {
	if m.Count <= 1 {
		return m.Text
	}
	return fmt.Sprintf("%s (%d times, until %s)", m.Text, m.Count,
		noon.Add(m.Until).Format(time.TimeOnly))
}

// A Version is the content of the lock document from an instant on. If Fields is empty, the
// document was deleted.
type Version struct {
	At     time.Duration
	Fields []string // as NAME: VALUE
}

// record collects the events of a play. Only the event loop of the world uses it, except for the
// methods mark and count.
type record struct {
	w        *world
	versions map[string]map[string]bson.Raw // last documents, by collection and _id
	words    map[string]string              // replacements of ObjectIDs
	bars     []Bar
	lock     []Version

	mu    sync.Mutex // guards the rest
	marks []Mark
	same  map[string]int // index of the mark for commands of one kind and answer
}

// mark adds a mark to the record. The event loop of the world may call it, and so may a goroutine
// that an event has woken. The process is nil for the server and for an operator.
func (r *record) mark(p *process, kind, text string) {
	m := Mark{At: r.w.Now(), Process: -1, Kind: kind, Text: text}
	if p != nil {
		m.Process = p.Index
	}
	r.count("", m)
}

// span adds a bar to a process. If an earlier bar of the same kind reaches the beginning of the new
// bar, span extends the earlier bar instead.
func (r *record) span(p *process, kind string, from, until time.Duration) {
	for i, b := range slices.Backward(r.bars) {
		if b.Process == p.Index && b.Kind == kind {
			if b.Until >= from {
				r.bars[i].Until = max(b.Until, until)
				return
			}
			break
		}
	}
	r.bars = append(r.bars, Bar{Process: p.Index, Kind: kind, From: from, Until: until})
}

// note records the figures of a decision, as mongos logged them in an old generation. The first
// word of format is the kind of the note.
func (p line) note(format string, args ...any) {
	kind, _, _ := strings.Cut(format, " ")
	p.w.record.count(p.name+p.source+format, Mark{At: p.w.Now(), Process: p.Index, Kind: kind,
		Text: fmt.Sprintf(format, args...), Source: p.source,
		Quiet: kind == "remembers" || kind == "asks:", Weight: strings.Count(format, "forces")})
}

// decides records the decision of a contender. The contender compares two times of one clock: the
// present time, and the time at the beginning of the watch.
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
	answer, struck, weight := brief(err), "", 0
	if err == nil && c.answer != nil {
		answer = c.answer()
	}
	if c.changed {
		weight = 1
	}
	if c.struck.what != "" {
		struck, weight = " ["+string(c.struck.what)+"]", 2
	}
	m := Mark{At: c.sent, Process: c.p.Index, Kind: string(c.kind), Source: c.source,
		Text: c.op + ": " + answer + struck, Weight: weight}
	if c.kind.writes() && c.kind != Ping {
		m.Sent = c.text
	}
	if now := r.w.Now(); now-c.sent > s { // a slow answer gets its own mark
		m.Text = c.op + ": sent" + struck
		r.count(fmt.Sprint(now, c.p.name), m)
		m.At, m.Text = now, c.op+": answered: "+answer
	} else {
		m.Quiet = err == nil && struck == "" && slices.Contains(
			[]Kind{Ping, Read, Reread, Clean, Clock, Ask, Sight}, c.kind)
	}
	// The key has no digits, because times and sessions differ between polls.
	r.count(c.p.name+digits.ReplaceAllString(m.Text, ""), m)
}

// count adds a mark. If the key is known, count only increments the counter of the mark with this
// key, because there are thousands of polls. An empty key makes count forget all keys, and so does
// a change of a lock document.
func (r *record) count(key string, m Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i, known := r.same[key]; known {
		r.marks[i].Count++
		r.marks[i].Until = m.At
		return
	}
	if key == "" || r.same == nil {
		r.same = map[string]int{}
	}
	if key != "" {
		r.same[key] = len(r.marks)
	}
	m.Count, m.Text, m.Sent = 1, r.plain(m.Text), r.plain(m.Sent)
	r.marks = append(r.marks, m)
}

// changes records all changes of documents since the previous call. The given process made the
// changes, or an operator if it is nil. The result reports whether any document has changed.
func (r *record) changes(by *process) (changed bool) {
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
				r.version(by, collection, id, there[id])
				changed = true
			}
		}
		r.versions[collection] = there
	}
	return changed
}

// version records a change of a document. The new document is nil if it was removed.
func (r *record) version(by *process, collection, id string, raw bson.Raw) {
	if collection == pings {
		_, err := raw.LookupErr("condemned")
		switch {
		case raw == nil:
			r.mark(nil, "", "ping of "+owner(id)+" is removed")
		case err == nil:
			r.mark(nil, "", "ping of "+owner(id)+": condemned")
		case by != nil: // a ping counts until the next one
			r.span(by, "pings", r.w.Now(), r.w.Now()+31*s)
		}
		return
	}
	d := decode(raw)
	if id == r.w.lock {
		r.w.judge.reads(d)
		v := Version{At: r.w.Now()}
		for _, e := range d {
			v.Fields = append(v.Fields, e.Key+": "+r.plain(value(e.Value)))
		}
		r.lock = append(r.lock, v)
	}
	r.mark(nil, "", d.brief())
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

// brief formats a document that a command has read or written.
func (d document) brief() string {
	switch {
	case d == nil:
		return "no document"
	case d.value("ping") != nil:
		return "ping " + value(d.value("ping"))
	case d.state() == 0:
		return "state 0"
	}
	text := fmt.Sprintf("state %d, %s", d.state(), owner(d.text("process")))
	if fence := d.value("fence"); fence != nil {
		text += fmt.Sprintf(", fence %v", fence)
	}
	if queue, _ := d.value("waiters").(bson.A); len(queue) > 0 {
		text += fmt.Sprintf(", waiters %d", len(queue))
	}
	return text
}

// owner returns the letter of the process with this process id, such as A.
func owner(id string) string {
	host, _, more := strings.Cut(strings.TrimPrefix(id, "shard-"), ":")
	if more || len(host) == 1 {
		return strings.ToUpper(host)
	}
	return host
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
		if r.words[id] == "" {
			r.words[id] = fmt.Sprintf("ts-%d", len(r.words)+1)
		}
		return r.words[id]
	})
	return ourLabel.ReplaceAllString(s, ":random")
}

// result adds all events to the play.
func (r *record) result(p *Play) {
	for _, q := range r.w.processes {
		p.Processes = append(p.Processes, q.name)
	}
	slices.SortStableFunc(r.bars, func(a, b Bar) int {
		return slices.Index(barKinds, a.Kind) - slices.Index(barKinds, b.Kind)
	})
	slices.SortStableFunc(r.marks, func(a, b Mark) int { return int(a.At - b.At) })
	p.Bars, p.Marks, p.Lock = r.bars, r.marks, r.lock
}

// Time formats an instant of a play as true time of day.
func Time(at time.Duration) string { return noon.Add(at).Format("15:04:05.0") }

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
