package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/configserver"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
)

// Where nobody looks at a screen a line tells each change, once, and Ctrl-C is the end that is
// meant.
func TestWatch_NoTerminal_TellsEachChangeOnce(t *testing.T) {
	b := newBase(t)
	b.hold("job", 3)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	out, done := start(ctx, t, b.flags("watch", "--every", "100ms")...)
	says(t, out.String, `"job" held by host:1, fence 3 (doing a balance round)`)
	b.held(foreign, 9)
	says(t, out.String, `fence 9`)
	if _, err := b.db.Collection(catalog.LocksCollection).UpdateByID(t.Context(), "job",
		bsontest.D("$set", bsontest.D("state", int32(0)))); err != nil {
		t.Fatal(err)
	}
	says(t, out.String, `"job" is free`)
	cancel(interrupted{syscall.SIGINT})
	r := await(t, done).want(t, 0)
	if n := strings.Count(r.out, "\n"); n != 3 {
		t.Errorf("%d lines for 3 changes:\n%s", n, r.out)
	}
	if i := strings.IndexAny(r.out, "\x1b\u202e\u009b"); i >= 0 {
		t.Errorf("a terminal could obey %q", r.out[i:])
	}
}

func TestWatch_JSON_IsAnObjectALine(t *testing.T) {
	b := newBase(t)
	b.hold(foreign, 3)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	out, done := start(ctx, t, b.flags("watch", "--json", "--every", "100ms")...)
	says(t, out.String, "\n")
	cancel(interrupted{syscall.SIGINT})
	r := await(t, done).want(t, 0)
	var got entry
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || got.Name != foreign ||
		len(got.Holders) != 1 || got.Holders[0].Fence != 3 {
		t.Errorf("got %+v (%v) from\n%s", got, err, r.out)
	}
}

// A server that goes away does not end it.
func TestWatch_ServerGoesAway_IsToldAndAskedAgain(t *testing.T) {
	t.Parallel()
	server := assert.Value(configserver.Start(t.Context(), configserver.Config{}))(t)
	b := newBaseOf(t, server.URI())
	b.hold("job", 3)
	b.uri += "&serverSelectionTimeoutMS=300"
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	out, done := start(ctx, t, b.flags("watch", "--every", "100ms")...)
	says(t, out.String, "fence 3")
	assert.Must(t, server.Close(context.WithoutCancel(t.Context())))
	says(t, out.errs.String, "no server answers")
	cancel(interrupted{syscall.SIGINT})
	await(t, done).want(t, 0)
}

// The first reading after a failure says so, and a failure that stays is told once.
func TestDiary_Failure_IsToldOnceAndItsEnd(t *testing.T) {
	t.Parallel()
	var out, errOut strings.Builder
	d := &diary{out: &out, errOut: &errOut}
	var at time.Time
	empty := newListing("db")
	for _, text := range []string{"", "no server answers at away: 1.2s",
		"no server answers at away: 1.3s", "distlock: denied", "distlock: closed", "distlock: closed", "",
		""} {
		var failed error
		if text != "" {
			failed = errors.New(text)
		}
		assert.Must(t, d.tell(at, empty, failed))
	}
	for _, once := range []string{"away", "denied", "closed", "reads again"} {
		if got := errOut.String(); strings.Count(got, once) != 1 {
			t.Errorf("not once told of %q:\n%s", once, got)
		}
	}
}

// One screen is never wider or higher than the terminal, however small that is.
func TestFrame_FitsTheTerminal(t *testing.T) {
	t.Parallel()
	r := newListing("db")
	for i := range 30 {
		r.Locks = append(r.Locks, row{Name: foreign, Held: true, Process: "host:1:2:3", Fence: int64(i),
			Why: foreign})
		r.Line.Waiters = append(r.Line.Waiters,
			waiterRow{Name: foreign, Place: i, Process: foreign, Why: foreign})
	}
	for _, size := range [][2]int{{200, 100}, {80, 24}, {40, 10}, {40, 2}, {10, 1}} {
		width, height := size[0], size[1]
		for _, failed := range []error{nil,
			errors.New("no server answers at host.example.org: " + strings.Repeat("away ", 20))} {
			s := &onTerminal{every: time.Second, hosts: "host.example.org:27017"}
			s.last, s.at = r, time.Now()
			whole := s.text(time.Now(), failed, width)
			if !strings.Contains(whole, "1 held, 30 wai") || width == 80 &&
				!strings.Contains(whole, "(shortened; distlock locks --wide") {
				t.Errorf("it says\n%s", whole)
			}
			text, _ := frame(whole, width, height, 3)
			text = strings.TrimSuffix(strings.TrimPrefix(text, home), clearBelow)
			lines := strings.Split(strings.ReplaceAll(text, clearLine, ""), "\r\n")
			if len(lines) > height {
				t.Errorf("%d lines in a terminal of %d by %d", len(lines), width, height)
			}
			narrow(t, strings.Join(lines, "\n"), width)
		}
	}
}
