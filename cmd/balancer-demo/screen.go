package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/term"

	"mongodlm/catalog"
	"mongodlm/cmd/balancer-demo/internal/balancer"
	"mongodlm/cmd/balancer-demo/internal/view"
)

// keptEvents is how many events the live table can show.
const keptEvents = 40

// screen shows the demo: a live table on a terminal, lines elsewhere.
type screen struct {
	out    io.Writer
	file   *os.File // nil when out is no terminal
	events *[]view.Event
}

func newScreen(out io.Writer) screen {
	s := screen{out: out, events: &[]view.Event{}}
	if f, ok := isTerminal(out); ok {
		s.file = f
	}
	return s
}

func (s screen) event(e view.Event) {
	if s.file == nil {
		fmt.Fprintln(s.out, view.Plain(e))
		return
	}
	*s.events = append(*s.events, e)
	if extra := len(*s.events) - keptEvents; extra > 0 {
		*s.events = slices.Delete(*s.events, 0, extra)
	}
}

func (s screen) draw(picture func() view.State) {
	if s.file == nil {
		return
	}
	width, height, err := term.GetSize(int(s.file.Fd()))
	if err != nil {
		width, height = 100, 30
	}
	state := picture()
	state.Height, state.Events = height, *s.events
	fmt.Fprint(s.out, view.Frame(view.Render(state, width)))
}

// describe words an event of a balancer; ok is false for what is not worth a line. line is who waits.
func describe(e balancer.Event, line []view.Waiter) (shown view.Event, ok bool) {
	shown = view.Event{Balancer: e.Number, Kind: string(e.Kind)}
	if e.Fence != 0 {
		shown.Fields = append(shown.Fields, view.Field{Key: "fence", Value: fmt.Sprint(e.Fence)})
	}
	switch e.Kind {
	case balancer.Started:
		shown.Text = "ready"
		shown.Fields = append(shown.Fields, view.Field{Key: "process", Value: e.Process})
	case balancer.Entered:
		shown.Kind, shown.Text = "round", "has the lock after "+view.Short(e.Waited)
		shown.Fields = append(shown.Fields, view.Field{Key: "line", Value: view.Line(line)})
	case balancer.TookOver:
		shown.Kind, shown.Text = "takeover", "took the lock of a dead holder after "+
			view.Short(e.Waited)
		shown.Fields = append(shown.Fields, view.Field{Key: "evidence", Value: e.Text})
	case balancer.MovedOne:
		shown.Kind, shown.Text = "move", fmt.Sprintf("%s from %s to %s", e.Chunk, e.From, e.To)
	case balancer.LostLock:
		shown.Text = e.Text
	case balancer.Refused:
		shown.Text = "a write with its old fence was refused: " + e.Text
	case balancer.Breach:
		shown.Kind, shown.Text = "violation", "a write with its old fence went through"
	default:
		return shown, false
	}
	return shown, true
}

// observe looks at the lock and at who waits for it. What cannot be read is shown as it was.
func (d *demo) observe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	look, err := catalog.LookAt(ctx, d.meta.catalog, balancer.LockName)
	if err != nil {
		return
	}
	d.look, d.line = look, nil
	if look.Lock == nil {
		return
	}
	for _, w := range look.Lock.Waiters {
		one := view.Waiter{Number: d.ledger.number(w.Process), Process: w.Process, Waited: -1}
		if !look.ServerTime.IsZero() && !w.Since.IsZero() {
			one.Waited = max(0, look.ServerTime.Sub(w.Since))
		}
		d.line = append(d.line, one)
	}
	d.ledger.stood(d.line)
}

// picture is the present state for the live table.
func (d *demo) picture(ctx context.Context) view.State {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	state := view.State{
		Title: fmt.Sprintf("%d balancers on one lock", d.o.processes), Server: d.server,
		Elapsed: d.since(), Finished: d.balanced, Takeovers: d.ledger.takeovers,
	}
	for n := 1; n <= d.o.processes; n++ {
		state.Balancers = append(state.Balancers, *d.ledger.of(n))
	}
	if l := d.look.Lock; l != nil {
		state.Lock = view.Lock{
			Name: l.Name, Held: l.Held, Process: l.Process, Number: d.ledger.number(l.Process),
			Fence: l.Fence, Why: l.Why, Silent: -1, Takeover: d.o.takeover,
			Dead: d.ledger.number(l.Process) > 0 && !d.ledger.now(l.Process),
		}
		if !d.look.ServerTime.IsZero() {
			state.Lock.Since = max(0, d.look.ServerTime.Sub(l.When))
		}
		if ping := d.look.Ping; ping != nil && !d.look.ServerTime.IsZero() {
			state.Lock.Silent = max(0, d.look.ServerTime.Sub(ping.At))
		}
		if l.Held && d.ledger.now(l.Process) {
			state.Balancers[state.Lock.Number-1].Holder = true
		}
	}
	state.Line = d.line
	for i, w := range d.line {
		if w.Number > 0 && d.ledger.now(w.Process) {
			state.Balancers[w.Number-1].Place = i + 1
		}
	}
	d.pingAges(ctx, state, d.look.ServerTime)
	if now, err := d.meta.Read(ctx); err == nil {
		state.Shards = loadsOf(now)
		for _, c := range now.Collections {
			state.Collections = append(state.Collections, c.NS)
		}
	}
	return state
}

func (d *demo) pingAges(ctx context.Context, state view.State, now time.Time) {
	cursor, err := d.meta.db.Collection(catalog.PingsCollection).Find(ctx, bson.D{})
	if err != nil || now.IsZero() {
		return // the table shows it as unknown
	}
	defer func() { _ = cursor.Close(ctx) }()
	for cursor.Next(ctx) {
		ping, bad := catalog.ParsePing(cursor.Current)
		n := d.ledger.number(ping.Process)
		if bad != nil || n == 0 || !d.ledger.now(ping.Process) {
			continue
		}
		b := &state.Balancers[n-1]
		if age := max(0, now.Sub(ping.At)); b.PingAge < 0 || age < b.PingAge {
			b.PingAge = age
		}
	}
}
