package study

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// A Play is one case, played by one generation.
type Play struct {
	Case       string
	Generation string
	Title      string // of the generation, or of the release that is played in its place
	Length     time.Duration
	Outcome    Outcome
	Missed     []string // the accidents of the case that did not happen
	Record
}

// A Record is the log of a play.
type Record struct {
	Processes []Process
	Bars      []Bar
	Marks     []Mark
	Writes    []Written
	Versions  []Version
}

// A Process took part.
type Process struct {
	Name  string `json:"name"`
	Clock string `json:"clock"` // the error of its clock; empty without one
}

// A Bar is a stretch of time of a process.
type Bar struct {
	Process int
	Kind    string // waits, holds, paused, cut, hangs, two: it ran and had the lock, as another did
	From    time.Duration
	Until   time.Duration
}

// A Mark is something that happened.
type Mark struct {
	At      time.Duration
	Process int // -1: the server, or an operator
	Kind    string
	Text    string // of a command its name
	Sent    string // of a command that writes documents: its match and its change
	Answer  string
	Changed bool   // it has changed a document
	Struck  bool   // an accident of the case has struck it
	Source  string // the line of the server's source that it follows; empty in ours
	sent    func() string
	// Count is how often the same happened, and Until when it did last: polls and pings.
	Count int
	Until time.Duration
}

// A Version is a document from an instant on; without fields it was deleted.
type Version struct {
	At         time.Duration
	Collection string
	ID         string
	By         int    // the process that changed it; -1: the operator
	Source     string // the line of the server's source that changed it
	Fields     []Field
}

// A Field is one of a document, as a person reads it.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// record writes down a play. It belongs to the loop of the world.
type record struct {
	w        *world
	versions map[string][]byte
	words    map[string]string // the replacement of an ObjectID
	unseen   bool              // only the outcome is wanted

	mu   sync.Mutex // guards the rest
	out  Record
	same map[string]int // the mark for commands of the same kind and answer
}

// A Written is a write to the protected resource.
type Written struct {
	At      time.Duration
	Process int
	Verdict string // written; stale: after one of a newer holder; fenced: refused
}

func (r *record) index(p *process) int {
	if p == nil {
		return -1
	}
	return p.Index
}

// mark notes something. It may be called by the one goroutine that an event has woken.
func (r *record) mark(p *process, kind, text string) {
	if r.unseen {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.same = nil
	r.out.Marks = append(r.out.Marks,
		Mark{At: r.w.Now(), Process: r.index(p), Kind: kind, Text: r.plain(text)})
}

func (r *record) span(p *process, kind string, from, until time.Duration) {
	r.out.Bars = append(r.out.Bars, Bar{Process: r.index(p), Kind: kind, From: from, Until: until})
}

// two notes that a process held the lock while another did; it extends an adjacent stretch.
func (r *record) two(p *process, from, until time.Duration) {
	for i, b := range r.out.Bars {
		if b.Process == p.Index && b.Kind == "two" && b.Until == from {
			r.out.Bars[i].Until = until
			return
		}
	}
	r.span(p, "two", from, until)
}

func (r *record) write(t *tenureRecord, verdict string) {
	r.out.Writes = append(r.out.Writes, Written{r.w.Now(), t.p.Index, verdict})
	text := map[string]string{"written": "writes", "stale": "STALE WRITE: a newer holder has written",
		"fenced": "its stale write is refused by the fence"}[verdict]
	r.mu.Lock()
	defer r.mu.Unlock()
	kind := "write " + verdict
	r.again(t.p.name+text, Mark{At: r.w.Now(), Process: t.p.Index, Kind: kind, Text: text, Count: 1})
}

// The kinds of notes on the way to a decision.
const (
	decided  = "decides"
	inquired = "asks"
	watched  = "watches"
)

// watches begins a note for every ping that a contender reads.
const watches = "remembers the ping "

// note notes the figures on which a contender of an old generation decides, as mongos logged them.
// The same decision is counted, as polls are.
func (p line) note(format string, args ...any) {
	p.noted(format, func() string { return fmt.Sprintf(format, args...) })
}

func (p line) noted(format string, text func() string) {
	r := p.w.record
	if r.unseen {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m := Mark{At: p.w.Now(), Process: p.Index, Kind: decided, Count: 1, Source: p.source}
	if strings.HasPrefix(format, watches) {
		m.Kind = watched
	}
	if strings.HasPrefix(format, inquired) {
		m.Kind = inquired
	}
	if _, counted := r.same[p.name+p.source+format]; !counted {
		m.Text = r.plain(text())
	}
	r.again(p.name+p.source+format, m)
}

// hours is how a clock is shown in a decision.
const hours = "15:04:05.000"

// decides notes a decision by one clock: its present time, and its time when the watch began.
func (p line) decides(now, was time.Time, limit time.Duration, force bool) {
	format := "%s - %s = %s unchanged, within %s"
	if force {
		format = "%s - %s = %s unchanged, over %s: forces"
	}
	p.noted(format, func() string {
		gap := Span(max(0, now.Sub(was)))
		return fmt.Sprintf(format, now.UTC().Format(hours), was.UTC().Format(hours), gap, Span(limit))
	})
}

// long is how long a command may take before its answer is noted apart from it.
const long = time.Second

// exchange notes a command and its answer. The same command with the same answer is counted, until
// anything else happens: there are thousands of polls.
func (r *record) exchange(c *command, err error) {
	if r.unseen {
		return
	}
	answer := "done"
	switch {
	case err != nil:
		answer = said(err)
	case c.answer != nil:
		answer = c.answer()
	}
	if c.kind == Write {
		return
	}
	struck := ""
	if c.struck != "" {
		struck = " [" + c.struck + "]"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m := Mark{At: c.sent, Process: c.p.Index, Kind: string(c.kind), Text: c.op, Count: 1,
		Answer: answer + struck, Changed: c.changed, Struck: c.struck != "", Source: c.source}
	if c.kind.writes() && c.kind != Ping {
		m.sent = c.text
	}
	if now := r.w.Now(); now-c.sent > long { // other events may come in between
		m.Answer, m.Changed = "sent"+struck, false
		r.again(fmt.Sprint(now, c.p.name), m)
		m.At, m.Answer, m.Changed = now, "answered: "+answer, c.changed
	}
	r.again(c.p.name+string(c.kind)+strings.Map(letters, c.op+m.Answer), m)
}

// again counts a mark, or makes it. The caller holds mu of the world.
func (r *record) again(key string, m Mark) {
	if i, known := r.same[key]; known {
		r.out.Marks[i].Count++
		r.out.Marks[i].Until = m.At
		return
	}
	if r.same == nil {
		r.same = map[string]int{}
	}
	r.same[key] = len(r.out.Marks)
	if m.sent != nil {
		m.Sent, m.sent = r.plain(m.sent()), nil
	}
	m.Answer = r.plain(m.Answer)
	r.out.Marks = append(r.out.Marks, m)
}

// letters leaves the digits out: times and sessions differ from poll to poll.
func letters(r rune) rune {
	if '0' <= r && r <= '9' {
		return -1
	}
	return r
}

// said returns the name of an error of a command.
func said(err error) string {
	switch {
	case errors.Is(err, catalog.ErrNotFree):
		return "not free"
	case errors.Is(err, catalog.ErrNoMatch):
		return "no match"
	case errors.Is(err, catalog.ErrCondemned):
		return "condemned"
	}
	return brief(err)
}

// changes notes which documents a process has changed, or nil, an operator, and reports whether
// there were any.
func (r *record) changes(by *process, source string) bool {
	before := len(r.out.Versions)
	for _, collection := range []string{locks, pings} {
		there := map[string]bool{}
		for _, raw := range r.w.Server.Documents(collection) {
			id, _ := raw.Lookup("_id").StringValueOK()
			key := collection + " " + id
			there[key] = true
			if !bytes.Equal(r.versions[key], raw) {
				r.versions[key] = raw
				r.version(by, source, collection, id, raw)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(r.versions)) {
			if strings.HasPrefix(key, collection+" ") && !there[key] {
				delete(r.versions, key)
				r.version(by, source, collection, strings.TrimPrefix(key, collection+" "), nil)
			}
		}
	}
	return len(r.out.Versions) > before
}

func (r *record) version(by *process, source, collection, id string, raw bson.Raw) {
	if collection == locks {
		r.same = nil
	}
	named := collection == locks && id == r.w.lock
	if r.unseen && !named {
		return
	}
	v := Version{At: r.w.Now(), Collection: collection, ID: r.plain(id), By: r.index(by),
		Source: source, Fields: []Field{}}
	var d document
	if raw != nil {
		d = r.w.parse(raw)
	}
	if named {
		r.w.judge.reads(d)
	}
	for _, e := range d {
		v.Fields = append(v.Fields, Field{e.Key, r.plain(value(e.Value))})
	}
	r.out.Versions = append(r.out.Versions, v)
}

// value writes a value as a person reads it.
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

// brief is a document in one line.
func (r *record) brief(d document) string {
	if d == nil {
		return "none"
	}
	if d.value("ping") != nil {
		return "ping " + value(d.value("ping"))
	}
	if d.state() == 0 {
		return "state 0"
	}
	return fmt.Sprintf("state %d, %s", d.state(), owner(d.text("process")))
}

// owner is the letter of a process in its id.
func owner(id string) string {
	host, _, more := strings.Cut(strings.TrimPrefix(id, "shard-"), ":")
	if more || len(host) == 1 {
		return strings.ToUpper(host)
	}
	return host
}

// state formats the lock document, for a reply of ours.
func (r *record) state(kind Kind) string {
	if kind == Ping || kind == Clean || kind == Clock {
		return "done"
	}
	for _, d := range r.w.read(locks, byID(r.w.lock)) {
		return r.brief(d)
	}
	return "none"
}

var (
	objectIDs  = regexp.MustCompile(`\b[0-9a-f]{24}\b`)
	ourProcess = regexp.MustCompile(`\b([a-z]+):\d+:(\d+):[0-9a-f]{8}-[0-9a-f-]{27}`)
	ourLabel   = regexp.MustCompile(`:[0-9a-f]{8}\b`)
)

// plain replaces random values: ObjectIDs by ts-1, ts-2 in the order in which they were
// seen, and the random part of our process ids.
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

// result returns all events, in the order of time.
func (r *record) result() Record {
	for _, p := range r.w.processes {
		r.out.Processes = append(r.out.Processes, Process{p.name, p.wrongClock()})
	}
	for _, t := range r.w.judge.tenures {
		r.span(t.p, "holds", t.From, t.Works)
		if t.Works < t.Until {
			r.span(t.p, "hangs", t.Works, t.Until)
		}
	}
	for _, w := range r.w.judge.wanting {
		r.span(w.p, "waits", w.from, w.until)
	}
	order := []string{"waits", "holds", "hangs", "paused", "cut", "two"} // as they are drawn
	slices.SortStableFunc(r.out.Bars, func(a, b Bar) int {
		return slices.Index(order, a.Kind) - slices.Index(order, b.Kind)
	})
	slices.SortStableFunc(r.out.Marks, func(a, b Mark) int {
		return int(a.At - b.At)
	})
	return r.out
}

// wrongClock describes the error of the clock of a process.
func (p *process) wrongClock() string {
	ahead := p.now().Sub(p.w.True())
	switch {
	case p.stands:
		return "stands still since " + p.now().Format("15:04")
	case ahead > 0:
		return Span(ahead) + " ahead"
	case ahead < 0:
		return Span(-ahead) + " behind"
	}
	return ""
}

// Span writes a duration in as many figures as a person reads.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	if d < 100*time.Millisecond {
		return d.Round(time.Millisecond).String()
	}
	switch d = d.Round(100 * time.Millisecond); {
	case d < time.Minute:
		return fmt.Sprintf("%gs", d.Seconds())
	case d < time.Hour:
		d = d.Round(time.Second)
		if d%time.Minute == 0 {
			return fmt.Sprintf("%dm", d/time.Minute)
		}
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		d = d.Round(time.Minute)
		if d%time.Hour == 0 {
			return fmt.Sprintf("%dh", d/time.Hour)
		}
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd", d.Round(day)/day)
}
