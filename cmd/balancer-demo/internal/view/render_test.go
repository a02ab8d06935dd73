package view_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"mongodlm/cmd/balancer-demo/internal/view"
)

func picture() view.State {
	s := view.State{
		Title: "balancer-demo", Server: "127.0.0.1:27119", Elapsed: 12345 * time.Millisecond,
		Lock: view.Lock{Name: "balancer", Held: true, Number: 2, Fence: 42,
			Process: "host:4712:1460419200:5f0c", Why: "doing balance round",
			Since: 130 * time.Millisecond},
		Line: []view.Waiter{{Number: 3, Waited: 412 * time.Millisecond},
			{Process: "other:1:1460419200:aa", Waited: -1}},
		Balancers: []view.Balancer{
			{Number: 1, PID: 4711, Condition: view.Stopped, Rounds: 17, Moves: 61,
				PingAge: 3200 * time.Millisecond, Fence: 1795240019095},
			{Number: 2, PID: 4712, Condition: view.Running, Rounds: 20, Moves: 77,
				PingAge: 40 * time.Millisecond, Fence: 42, Holder: true},
			{Number: 3, PID: 4713, Condition: view.Killed, PingAge: -1, Place: 1},
		},
		Takeovers: []view.Takeover{
			{At: 9 * time.Second, From: "host:4711:1460419200:77aa", To: "host:4712:1460419200:5f0c",
				Fence: 40, Evidence: "ping 3.1s old by server and by own clock, limit 3s, skew 2ms"},
		},
		Collections: []string{"shop.orders", "shop.events", "media.files", "iot.readings",
			"crm.contacts", "archive.years"},
	}
	for i, n := range []int{300, 120, 80, 33, 1} {
		s.Shards = append(s.Shards, view.Load{
			Shard: fmt.Sprintf("shard%d", i), Draining: i == 4, Chunks: n,
			Collections: map[string]int{"shop.orders": n / 2, "media.files": n - n/2},
		})
	}
	for i := range 20 {
		s.Events = append(s.Events, view.Event{
			At: time.Duration(i) * 600 * time.Millisecond, Balancer: i % 4, Kind: "round",
			Text: fmt.Sprintf("moved %d chunks", i%5),
		})
	}
	return s
}

func TestRender_Golden(t *testing.T) {
	t.Parallel()
	free := picture()
	free.Lock.Held, free.Finished, free.Elapsed = false, true, 83*time.Second
	free.Height = 40
	golden(t, "table-80.txt", view.Render(picture(), 80))
	golden(t, "table-160.txt", view.Render(free, 160))
	golden(t, "table-empty.txt", view.Render(view.State{Title: "balancer-demo"}, 80))
}

// The seconds between the death of a holder and the takeover are what the demo is about: the table
// shows the dead one, and how long it has been silent, and nobody else as the holder.
func TestRender_DeadHolder_IsShownSilent(t *testing.T) {
	t.Parallel()
	s := picture()
	s.Lock.Dead, s.Lock.Silent, s.Lock.Takeover = true, 2100*time.Millisecond, 4*time.Second
	s.Balancers[1].Holder = false
	s.Takeovers[0].Evidence = strings.Repeat("all clocks say that it is silent ", 9)
	table := view.Render(s, 120)
	golden(t, "table-dead.txt", table)
	if !strings.Contains(table, "held by the DEAD #2, silent for 2.1s of 4.0s") ||
		strings.Contains(table, "HOLDER") {
		t.Errorf("the dead holder is not shown:\n%s", table)
	}
	whole := strings.ReplaceAll(table, "\n  ", " ")
	if n := strings.Count(whole, "all clocks say that it is silent"); n != 9 {
		t.Errorf("%d of 9 parts of the evidence can be read:\n%s", n, table)
	}
	s.Lock.Dead = false // a holder that is stopped
	if table = view.Render(s, 120); !strings.Contains(table, "held by #2, silent for 2.1s of 4.0s") {
		t.Errorf("the silence of a stopped holder is not shown:\n%s", table)
	}
}

func TestRender_AnyNumberOfRows_FitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, height := range []int{0, 24, 30, 40, 99} {
		for _, width := range []int{0, 80, 121, 160, 500} {
			for _, rows := range []int{0, 1, 3, 8, 50} {
				s := picture()
				s.Height = height
				s.Balancers = repeat(s.Balancers, rows)
				s.Line = repeat(s.Line, rows)
				s.Shards = repeat(s.Shards, rows)
				s.Takeovers = repeat(s.Takeovers, rows)
				wantFits(t, s, width)
			}
		}
	}
}

func repeat[T any](some []T, n int) []T {
	var all []T
	for i := range n {
		all = append(all, some[i%len(some)])
	}
	return all
}

func wantFits(t *testing.T, s view.State, width int) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(view.Render(s, width), "\n"), "\n")
	if limit := min(max(s.Height, 24), 40) - 1; len(lines) > limit {
		t.Errorf("height %d, %d balancers, %d shards: %d lines, want %d at most",
			s.Height, len(s.Balancers), len(s.Shards), len(lines), limit)
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > min(max(width, 80), 160) {
			t.Errorf("width %d: line of %d columns: %q", width, n, line)
		}
	}
}

// Whatever a database contains, it cannot move the cursor, break a line or widen the table.
func TestRender_ForeignText_IsEscaped(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[2J\r\n\t\x07\u202e\u009b31mevil \xff\xfe 漢字漢字漢字漢字漢字"
	s := picture()
	s.Title, s.Server = evil, evil
	s.Lock.Name, s.Lock.Process, s.Lock.Why = evil, evil, evil
	s.Lock.Number = 0
	s.Line[1].Process = evil
	s.Balancers[0].Condition = evil
	s.Takeovers[0].Evidence = evil
	s.Shards[0].Shard = evil
	s.Collections[0] = evil
	s.Events[19].Kind, s.Events[19].Text = evil, evil
	for _, width := range []int{80, 160} {
		table := view.Render(s, width)
		wantFits(t, s, width)
		wantHarmless(t, strings.ReplaceAll(table, "\n", ""))
		for line := range strings.Lines(table) {
			wide := 0
			for _, r := range line {
				if r >= 0x1100 {
					wide++
				}
			}
			if n := utf8.RuneCountInString(line) - 1 + wide; n > width {
				t.Errorf("line of %d columns at width %d: %q", n, width, line)
			}
		}
	}
}

func wantHarmless(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("not UTF-8: %q", text)
	}
	for _, r := range text {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x202e {
			t.Fatalf("control character %U in %q", r, text)
		}
	}
}

func TestRender_Bars_AreInProportion(t *testing.T) {
	t.Parallel()
	table := view.Render(picture(), 80)
	var lengths []int
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "shard") {
			lengths = append(lengths, strings.Count(line, "#"))
		}
	}
	want := []int{16, 6, 4, 1, 1}
	if fmt.Sprint(lengths) != fmt.Sprint(want) {
		t.Errorf("bars are %v long, want %v", lengths, want)
	}
}

func TestFrame_Table_IsWrappedInCursorEraseAndBold(t *testing.T) {
	t.Parallel()
	want := "\x1b[H\x1b[1mone\x1b[0m\x1b[K\ntwo\x1b[K\n\x1b[J"
	if got := view.Frame("one\ntwo\n"); got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}

func TestLine_Waiters_AreInTheirOrder(t *testing.T) {
	t.Parallel()
	three := view.Waiter{Number: 3, Waited: 412 * time.Millisecond}
	strange := view.Waiter{Process: "other:1:\x1b[2J", Waited: -1}
	for want, line := range map[string][]view.Waiter{
		"nobody":                          nil,
		`#3 for 412ms, other:1:\u001b[2J`: {three, strange},
		strings.Repeat("#3 for 412ms, ", 12) + "and 8 more": repeat([]view.Waiter{three}, 20),
	} {
		if got := view.Line(line); got != want {
			t.Errorf("want %s\n got %s", want, got)
		}
	}
}
