package takeover_test

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/takeover"
)

// TestMain runs 10,000 checks of every property by default, and fails if a goroutine is left.
func TestMain(m *testing.M) {
	effort.RapidChecks(10000)
	effort.Main(m)
}

// Most tests use a holder whose last ping was at noon, a contender with a round trip of 20 ms, and
// correct clocks.
const (
	limit    = 15 * time.Minute
	interval = 30 * time.Second
	skew     = 30 * time.Second
	maxGap   = 90 * time.Second
	trip     = 20 * time.Millisecond
	origin   = time.Hour // the contender's monotonic clock at noon
	night    = 8 * time.Hour
	process  = "db1:4711:1306929600:00000000-0000-4000-8000-000000000001"
)

const (
	unheld  = takeover.Free
	held    = takeover.Held
	watched = takeover.Watch
	taken   = takeover.Take
	skewed  = takeover.Skewed
	unread  = takeover.Malformed
)

var noon = time.Date(2011, 6, 1, 12, 0, 0, 0, time.UTC)

type (
	edit   = func(*takeover.Evidence)
	adjust = func(*takeover.Policy)
)

func policy(adjusts ...adjust) takeover.Policy {
	p := takeover.Policy{
		Takeover: limit, ForeignTakeover: limit, PingInterval: interval,
		MaxClockSkew: skew, MaxGap: maxGap,
	}
	for _, a := range adjusts {
		a(&p)
	}
	return p
}

func mode(m takeover.Rule) adjust { return func(p *takeover.Policy) { p.Rule = m } }

// look returns a read that was sent at the given time after noon.
func look(at time.Duration, edits ...edit) takeover.Evidence {
	e := takeover.Evidence{
		Name: "balancer", Held: true, Process: process, TS: [12]byte{11: 1}, Recorded: limit,
		HasPing: true, Ping: noon, Local: noon, Seq: 7, HasSeq: true,
		PingInterval: interval, PingTakeover: limit,
		Server: noon.Add(at + trip/2), Primary: "term 1", Wall: noon.Add(at + trip),
		Sent: origin + at, Received: origin + at + trip,
	}
	for _, f := range edits {
		f(&e)
	}
	return e
}

func noPing(e *takeover.Evidence) {
	e.HasPing, e.Ping, e.Local, e.Seq, e.HasSeq = false, time.Time{}, time.Time{}, 0, false
	e.PingInterval, e.PingTakeover = 0, 0
}

// foreign removes the fields that only distlock writes, so that the holder looks like a mongos.
func foreign(e *takeover.Evidence) {
	e.Local, e.Seq, e.HasSeq, e.PingInterval, e.PingTakeover = time.Time{}, 0, false, 0, 0
	e.Recorded = 0
}

func noSeq(e *takeover.Evidence)     { e.Seq, e.HasSeq = 0, false }
func noServer(e *takeover.Evidence)  { e.Server = time.Time{} }
func noLocal(e *takeover.Evidence)   { e.Local = time.Time{} }
func noWall(e *takeover.Evidence)    { e.Wall = time.Time{} }
func noPrimary(e *takeover.Evidence) { e.Primary = "" }

func seq(n int64) edit           { return func(e *takeover.Evidence) { e.Seq = n } }
func primary(s string) edit      { return func(e *takeover.Evidence) { e.Primary = s } }
func gap(d time.Duration) edit   { return func(e *takeover.Evidence) { e.LongestGap = d } }
func ping(d time.Duration) edit  { return func(e *takeover.Evidence) { e.Ping = noon.Add(d) } }
func pingAt(t time.Time) edit    { return func(e *takeover.Evidence) { e.Ping = t } }
func local(d time.Duration) edit { return func(e *takeover.Evidence) { e.Local = noon.Add(d) } }
func serverOff(d time.Duration) edit {
	return func(e *takeover.Evidence) { e.Server = e.Server.Add(d) }
}
func wallOff(d time.Duration) edit { return func(e *takeover.Evidence) { e.Wall = e.Wall.Add(d) } }

// pinged adds a ping of the holder at the given time after noon, by correct clocks.
func pinged(d time.Duration, n int64) edit {
	return func(e *takeover.Evidence) { e.Ping, e.Local, e.Seq = noon.Add(d), noon.Add(d), n }
}

// row is one case of Decide.
type row struct {
	name       string
	first, now takeover.Evidence
	policy     takeover.Policy
	verdict    takeover.Verdict
	rule       string
	remaining  time.Duration
	restart    bool
	says       string // part of the reason
}

// The result is a test case with a single read.
func once(name string, v takeover.Verdict, remaining time.Duration, e takeover.Evidence) row {
	return later(name, v, remaining, e, e)
}

// The result is a test case that ends without a takeover.
func later(
	name string, v takeover.Verdict, remaining time.Duration, first, now takeover.Evidence,
) row {
	return row{name: name, first: first, now: now, verdict: v, remaining: remaining, policy: policy()}
}

// The result is a test case in which the given rule takes the lock.
func takes(name, rule string, first, now takeover.Evidence) row {
	r := later(name, taken, 0, first, now)
	r.rule = rule
	return r
}

func (r row) by(p takeover.Policy) row { r.policy = p; return r }
func (r row) saying(reason string) row { r.says = reason; return r }
func (r row) anew() row                { r.restart = true; return r }

func check(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			got := takeover.Decide(r.first, r.now, r.policy)
			want := takeover.Decision{
				Verdict: r.verdict, Rule: r.rule, Remaining: r.remaining, Restart: r.restart,
				Reason: got.Reason,
			}
			assert.Equal(t, got, want, "\nwant %+[2]v\ngot  %+[1]v")
			if !strings.Contains(got.Reason, r.says) {
				t.Errorf("reason:\nwant %q in it\ngot  %q", r.says, got.Reason)
			}
			checkReason(t, got.Reason)
		})
	}
}

// checkReason requires that the reason is one printable line of at most 2,000 bytes.
func checkReason(t interface {
	Helper()
	Errorf(string, ...any)
}, reason string,
) {
	t.Helper()
	if reason == "" || len(reason) > 2000 {
		t.Errorf("the reason has %d bytes", len(reason))
	}
	for _, r := range reason {
		if !unicode.IsPrint(r) {
			t.Errorf("reason has the character %U: %q", r, reason)
		}
	}
}
