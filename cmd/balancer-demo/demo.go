package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"mongodlm/catalog"
	"mongodlm/cmd/balancer-demo/internal/balancer"
	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/configserver"
	"mongodlm/internal/clock"
)

// tick is the time between two checks of the processes and the faults.
const tick = 200 * time.Millisecond

// A demo runs the balancers as child processes.
type demo struct {
	o         opts
	out       io.Writer
	meta      *metadata
	server    string      // the address of the server, for the page
	clock     clock.Clock // its monotonic time is 0 at the start of the demo
	before    cluster.Cluster
	processes []*process // the index is the number minus 1
	takeovers int
	rounds    int // of all balancers
	faults    *faults
	events    chan balancer.Event
	failed    map[int]string // by number: the last error since the latest round
	balanced  bool
}

// demonstrate runs the demo and reports whether the demo succeeded.
func demonstrate(ctx context.Context, o opts, out io.Writer) (bool, error) {
	cluster, err := readCluster(o.cluster)
	if err != nil {
		return false, err
	}
	whole := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, demoLimit,
		fmt.Errorf("not finished within %v", demoLimit))
	defer cancel()
	d := &demo{o: o, out: out, server: "the MongoDB given by --uri", failed: map[int]string{},
		clock: clock.System()}
	if o.uri == "" {
		server, err := configserver.Start(ctx, configserver.Config{})
		if err != nil {
			return false, fmt.Errorf("start the embedded config server: %w", err)
		}
		defer func() {
			end, cancel := context.WithTimeout(context.Background(), closeLimit)
			defer cancel()
			_ = server.Close(end) // best effort: the folder is temporary
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
	return d.withPage(whole, func() (bool, error) { return d.play(ctx) })
}

// play runs the balancers until the cluster is balanced and the balancers have survived every
// fault. Then it prints the report, and reports whether the demo succeeded.
func (d *demo) play(ctx context.Context) (ok bool, err error) {
	if d.before, err = d.meta.Read(ctx); err != nil {
		return false, err
	}
	d.faults = newFaults(d)
	d.say(0, "start", "%d balancers, %d chunks on %d shards; timing shortened: ping %v, takeover %v",
		d.o.processes, len(d.before.Chunks), len(d.before.Shards), d.o.ping, d.o.takeover)
	err = d.work(ctx, d.handle, func() bool {
		d.faults.tick()
		return d.balanced && d.faults.next() == nil
	})
	judge, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit*3)
	defer cancel()
	r, unread := d.report(judge)
	if unread != nil {
		return false, errors.Join(err, unread)
	}
	r.ended = err
	_, err = io.WriteString(d.out, r.text())
	return r.ok(), err
}

// work starts the balancers and calls the function handle with each of their events. It calls the
// function done at the start, after each event and after each tick. When done returns true, work
// ends the balancers.
func (d *demo) work(ctx context.Context, handle func(context.Context, balancer.Event),
	done func() bool) error {
	d.events, d.processes = make(chan balancer.Event, 1024), make([]*process, d.o.processes)
	defer d.endAll()
	for n := range d.processes {
		if err := d.spawn(n + 1); err != nil {
			return err
		}
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e := <-d.events:
			handle(ctx, e)
		case <-ticker.C:
			if err := d.revive(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *demo) handle(ctx context.Context, e balancer.Event) {
	d.tell(e)
	if e.Kind == balancer.Balanced && !d.balanced {
		if now, err := d.meta.Read(ctx); err == nil && len(cluster.Candidates(now)) == 0 {
			d.balanced = true
			d.say(0, "balanced", "no chunk is left to move")
		}
	}
	d.faults.note(ctx, e)
}

func (d *demo) tell(e balancer.Event) {
	switch e.Kind {
	case balancer.Started:
		d.say(e.Number, "started", "ready process=%q", e.Process)
	case balancer.Entered:
		d.rounds++
		delete(d.failed, e.Number)
		d.say(e.Number, "round", "acquired the lock after %v fence=%d", short(e.Waited), e.Fence)
	case balancer.TookOver:
		d.takeovers++
		d.say(e.Number, "takeover", "took the lock of a dead holder after %v fence=%d evidence=%q",
			short(e.Waited), e.Fence, e.Text)
	case balancer.LostLock:
		d.say(e.Number, "lost", "%s fence=%d", e.Text, e.Fence)
	case balancer.Failed:
		if d.failed[e.Number] != e.Text { // do not log the same error again
			d.failed[e.Number] = e.Text
			d.say(e.Number, "error", "%s", e.Text)
		}
	}
}

func (d *demo) since() time.Duration { return d.clock.Now().Mono }

// say logs a line about the balancer with the given number. Number 0 means the demo itself.
func (d *demo) say(number int, kind, format string, args ...any) {
	fmt.Fprintln(d.out, line(d.since(), number, kind, fmt.Sprintf(format, args...)))
}

// line returns the log line of an event, without a newline and with escaped control characters. For
// example:
//
//	12.3s #2 takeover: took the lock of a dead holder after 4.1s fence=42 evidence="..."
func line(at time.Duration, number int, kind, text string) string {
	who := "demo"
	if number > 0 {
		who = fmt.Sprintf("#%d", number)
	}
	return fmt.Sprintf("%.1fs %s %s: %s", at.Seconds(), who, kind, catalog.Printable(text, 1000))
}

func short(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// revive restarts the killed balancers. It returns an error if a balancer has exited by itself.
func (d *demo) revive() error {
	for _, p := range d.processes {
		select {
		case <-p.exited:
		default:
			continue
		}
		if !p.killed {
			return fmt.Errorf("balancer %d exited unexpectedly: %v", p.number, p.cmd.ProcessState)
		}
		if err := d.spawn(p.number); err != nil {
			return err
		}
		d.say(p.number, "restart", "restarted as process %d", d.processes[p.number-1].cmd.Process.Pid)
	}
	return nil
}

func (d *demo) endAll() {
	var ending sync.WaitGroup
	for _, p := range d.processes {
		if p != nil {
			ending.Go(p.end)
		}
	}
	go func() { // ends with the last process
		ending.Wait()
		close(d.events) // all events were delivered
	}()
	for range d.events { // without a reader the balancers would block
	}
}
