package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"mongodlm/catalog"
	"mongodlm/cmd/balancer-demo/internal/balancer"
	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/cmd/balancer-demo/internal/referee"
	"mongodlm/cmd/balancer-demo/internal/view"
	"mongodlm/configserver"
	"mongodlm/internal/clock"
)

// refresh is the time between two pictures of the live table.
const refresh = 400 * time.Millisecond

// restartPause is how long a killed balancer stays away.
const restartPause = time.Second

// demo is the parent of the balancers.
type demo struct {
	o         opts
	out       io.Writer
	screen    screen
	meta      *metadata
	server    string
	clock     clock.Clock
	start     clock.Reading
	before    cluster.Cluster
	processes []*process
	ledger    *ledger
	look      catalog.Snapshot // the latest of the lock
	line      []view.Waiter
	faults    *faults
	events    chan balancer.Event
	restart   chan int // numbers of balancers that are due to be started again
	balanced  bool
}

// demonstrate runs the whole demo and reports whether it showed what it should.
func demonstrate(ctx context.Context, o opts, out io.Writer) (bool, error) {
	cluster, err := readCluster(o.cluster)
	if err != nil {
		return false, err
	}
	whole := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, demoLimit, fmt.Errorf("not done within %v", demoLimit))
	defer cancel()
	d := &demo{
		o: o, out: out, server: "the MongoDB given by --uri", clock: clock.System(),
		ledger: newLedger(), events: make(chan balancer.Event, 1024), restart: make(chan int, o.processes),
	}
	d.start = d.clock.Now()
	if o.json {
		d.out = io.Discard
	}
	d.screen = newScreen(d.out)
	if o.uri == "" {
		server, err := configserver.Start(ctx, configserver.Config{})
		if err != nil {
			return false, fmt.Errorf("start the embedded config server: %w", err)
		}
		defer func() {
			end, cancel := context.WithTimeout(context.Background(), closeLimit)
			defer cancel()
			_ = server.Close(end) // a temporary folder; nothing is lost
		}()
		d.o.uri, d.server = server.URI(), "embedded config server at "+server.Addr()
	}
	if d.meta, err = openMetadata(ctx, d.o); err != nil {
		return false, err
	}
	defer d.meta.close()
	if err := d.meta.Load(ctx, cluster); err != nil {
		return false, err
	}
	return d.withPage(whole, func() (bool, error) {
		report, err := d.play(ctx)
		if err != nil {
			return false, err
		}
		return report.OK(), d.publish(report, out)
	})
}

func (d *demo) publish(report view.Report, out io.Writer) error {
	if !d.o.json {
		_, err := io.WriteString(out, report.Text())
		return err
	}
	text, err := report.JSON()
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// play runs the balancers until everything was shown, and judges.
func (d *demo) play(ctx context.Context) (view.Report, error) {
	var err error
	if d.before, err = d.meta.Read(ctx); err != nil {
		return view.Report{}, err
	}
	d.faults = newFaults(d)
	d.say(0, "start", fmt.Sprintf("%d balancers, %d chunks on %d shards; timing shortened: ping %v, takeover %v",
		d.o.processes, len(d.before.Chunks), len(d.before.Shards), d.o.ping, d.o.takeover))
	for n := 1; n <= d.o.processes; n++ {
		p, err := spawn(d.o, n, d.events)
		if err != nil {
			d.endAll(ctx)
			return view.Report{}, err
		}
		d.processes = append(d.processes, p)
		d.ledger.restarted(n, p.pid())
	}
	loopErr := d.loop(ctx)
	d.endAll(context.WithoutCancel(ctx))
	judge, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit*3)
	defer cancel()
	report, err := d.report(judge)
	if err != nil {
		return report, errors.Join(loopErr, err)
	}
	var signal interrupted
	if errors.As(loopErr, &signal) {
		report.Interrupted = signal.String()
	} else if loopErr != nil {
		report.Violations = append(report.Violations, referee.Violation{
			Breach: "unfinished", Subject: "demo", Evidence: loopErr.Error() + d.complaints()})
	}
	d.observe(judge)
	d.screen.draw(func() view.State { return d.picture(judge) })
	return report, nil
}

// loop handles events and draws until the demo has shown everything.
func (d *demo) loop(ctx context.Context) error {
	ticker := d.clock.NewTimer(refresh)
	defer ticker.Stop()
	for !d.done() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e := <-d.events:
			d.handle(ctx, e)
		case n := <-d.restart:
			if err := d.respawn(n); err != nil {
				return err
			}
		case <-ticker.C():
			if err := d.revive(); err != nil {
				return err
			}
			d.faults.tick()
			d.observe(ctx)
			d.screen.draw(func() view.State { return d.picture(ctx) })
			ticker.Reset(refresh)
		}
	}
	return nil
}

func (d *demo) done() bool {
	if d.o.rounds > 0 && d.ledger.rounds >= d.o.rounds {
		return true
	}
	return d.balanced && d.faults.over()
}

func (d *demo) handle(ctx context.Context, e balancer.Event) {
	d.ledger.note(d.since(), e)
	if e.Kind == balancer.Entered {
		d.observe(ctx)
	}
	if shown, ok := describe(e, d.line); ok {
		shown.At = d.since()
		d.screen.event(shown)
	}
	if e.Kind == balancer.Entered {
		delete(d.ledger.failed, e.Number)
	}
	switch e.Kind {
	case balancer.Balanced:
		if now, err := d.meta.Read(ctx); err == nil && len(cluster.Candidates(now)) == 0 && !d.balanced {
			d.balanced = true
			d.say(0, "balanced", "no chunk is left to move")
		}
	case balancer.Failed:
		if d.ledger.failed[e.Number] == e.Text {
			break // the same again
		}
		d.ledger.failed[e.Number] = e.Text
		d.screen.event(view.Event{At: d.since(), Balancer: e.Number, Kind: "error", Text: e.Text})
	}
	d.faults.note(ctx, e)
}

func (d *demo) since() time.Duration { return d.clock.Now().Mono - d.start.Mono }

func (d *demo) say(number int, kind, text string) {
	d.screen.event(view.Event{At: d.since(), Balancer: number, Kind: kind, Text: text})
}

// respawn starts a balancer again that was killed.
func (d *demo) respawn(n int) error {
	p, err := spawn(d.o, n, d.events)
	if err != nil {
		return err
	}
	d.processes[n-1] = p
	d.ledger.restarted(n, p.pid())
	d.say(n, "restart", fmt.Sprintf("started again as process %d", p.pid()))
	return nil
}

// revive restarts what died without being killed by the demo; three times, then it is an error.
func (d *demo) revive() error {
	for _, p := range d.processes {
		if p.running() || d.ledger.of(p.number).Condition != view.Running {
			continue
		}
		if d.ledger.deaths++; d.ledger.deaths > 3 {
			return fmt.Errorf("balancer %d died: %s", p.number, p.complaint())
		}
		d.say(p.number, "died", p.complaint())
		if err := d.respawn(p.number); err != nil {
			return err
		}
	}
	return nil
}

// endAll ends every balancer; those that do not end by themselves are killed.
func (d *demo) endAll(ctx context.Context) {
	var ending sync.WaitGroup
	for _, p := range d.processes {
		ending.Go(func() { p.end(ctx) })
	}
	done := make(chan struct{})
	go func() { // ends with the last process
		ending.Wait()
		close(done)
	}()
	for ended := false; !ended || len(d.events) > 0; {
		select {
		case <-done:
			ended, done = true, nil
		case e := <-d.events: // keep reading, or they would wait for us
			d.ledger.note(d.since(), e)
		}
	}
}

func (d *demo) complaints() string {
	text := ""
	for _, p := range d.processes {
		if s := p.complaint(); s != "" {
			text += fmt.Sprintf("; balancer %d: %s", p.number, s)
		}
	}
	return text
}

// isTerminal reports whether out is a terminal.
func isTerminal(out io.Writer) (*os.File, bool) {
	f, ok := out.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}
