package integration_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/claim"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

var (
	daemons    = flag.Int("daemons", 6, "how many processes TestClaim_Daemons starts, at most 100")
	daemonRows = flag.Int("daemonrows", 600, "how many rows they work on")
	daemonKeys = flag.Int("daemonkeys", 30, "how many keys those have")
	daemonRate = flag.Float64("daemonrate", 50, "how many rows become due in a second")
)

// daemonTakeover is the takeover time of the processes.
const daemonTakeover = 30 * time.Second

// daemonEnv is the environment variable that turns the test program into one of the processes; see
// TestDaemon.
const daemonEnv = "MONGODLM_IT_DAEMON"

// An errand is a row of TestClaim_Daemons.
type errand struct {
	ID  int       `bson:"_id"`
	Key int       `bson:"event_id"`
	Due time.Time `bson:"execute_at"`
}

// errands is the queue configuration of all processes.
var errands = claim.Config{Due: "execute_at", Key: "event_id", Workers: 2, Backoff: time.Second}

// daemonSettings configures one process.
type daemonSettings struct {
	URI, Database, Collection, Host, Journal string
	Ping, Takeover, Closing                  time.Duration
}

// A note is a line of a journal. Each handler writes one at its start and one at its end. The times
// of all processes are comparable, because they run on one machine.
type note struct {
	Row, Key int
	Begun    bool
	Failed   bool // the handler failed on purpose
	At       int64
	Commands int64 // the number of row and hello commands of the process so far
}

// TestDaemon is the program of one process, not a test. It runs until its standard input ends.
func TestDaemon(t *testing.T) {
	text, ok := os.LookupEnv(daemonEnv)
	if !ok {
		t.Skip("only in processes that other tests start")
	}
	var s daemonSettings
	assert.Must(t, json.Unmarshal([]byte(text), &s))
	journal := assert.Value(os.OpenFile(s.Journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600))(t)
	var commands atomic.Int64
	count := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		name, _ := e.Command.Lookup(e.CommandName).StringValueOK()
		if name == s.Collection || e.CommandName == "hello" {
			commands.Add(1)
		}
	}}
	client := privateClient(t, options.Client().ApplyURI(s.URI).SetMonitor(count))
	cfg := distlock.Config{
		Client: client, PingClient: privateClient(t, options.Client().ApplyURI(s.URI)),
		Database: s.Database, Host: s.Host, Ping: s.Ping, Takeover: s.Takeover, Margin: s.Takeover / 10,
		CommandTimeout: s.Takeover / 5, Tuning: distlock.Tuning{MaxWatchGap: s.Takeover / 2},
	}
	m := newManager(t, cfg) // retries, because a hundred processes overload some machines
	coll := client.Database(s.Database).Collection(s.Collection)
	q, err := claim.New[errand](t.Context(), m, coll, errands)
	for errors.Is(err, context.DeadlineExceeded) {
		q, err = claim.New[errand](t.Context(), m, coll, errands)
	}
	assert.Must(t, err)
	write := func(row *claim.Row[errand], begun, failed bool) {
		now, doc := time.Now().UnixNano(), row.Doc
		line, _ := json.Marshal(note{doc.ID, doc.Key, begun, failed, now, commands.Load()})
		_, _ = journal.Write(append(line, '\n')) // one write per line leaves no partial line
	}
	ctx, end := context.WithCancel(t.Context())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); end() }()
	err = q.Run(ctx, func(ctx context.Context, row *claim.Row[errand]) error {
		write(row, true, false)
		time.Sleep(time.Duration(5+rand.IntN(15)) * time.Millisecond)
		fails := rand.IntN(20) == 0
		write(row, false, fails)
		if fails {
			return errors.New("on purpose")
		}
		return nil
	})
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), s.Closing)
	defer done()
	err = errors.Join(err, q.Close(closing))
	if closed := m.Close(closing); !errors.Is(closed, distlock.ErrOutcomeUnknown) {
		err = errors.Join(err, closed) // a slow server may leave the outcome unknown
	}
	assert.Must(t, err)
}

// Real processes handle every row although one of them is killed every second:
//   - No row is lost, handled twice at a time or started before it is due.
//   - Rows of one key are handled in order, one at a time.
//
// The long run: -daemons 100 -daemonrows 10000 -daemonkeys 500 -daemonrate 100. Two processors need
// a smaller rate.
func TestClaim_Daemons(t *testing.T) {
	t.Parallel()
	forThese(t, named("replicaset", "uri"), func(t *testing.T, w *world) {
		opts := options.Collection().SetWriteConcern(writeconcern.Majority())
		coll := w.rowsOf(t, w.d.app).Database().Collection("errands_"+bson.NewObjectID().Hex(), opts)
		t.Cleanup(func() { assert.NoErr(t, coll.Drop(context.WithoutCancel(t.Context()))) })
		admin := assert.Value(claim.NewAdmin(coll, errands))(t)
		assert.Must(t, admin.CreateIndexes(t.Context()))
		f := &fleet{t: t, w: w, coll: coll, admin: admin, dir: t.TempDir()}
		for range *daemons {
			f.launch()
		}
		begun := time.Now()
		f.plant(begun.Add(2 * time.Second))
		f.killUntilDone()
		took := time.Since(begun)
		f.end()
		f.judge()
		t.Logf("%d processes, %d rows, %d keys: %v; %d killed, %d handlers failed on purpose, "+
			"%d rows repeated after a kill, %.2f commands an item, late by %v (median), "+
			"%v (99 of 100)", *daemons, *daemonRows, *daemonKeys, took.Round(time.Second), f.killed,
			f.failed, f.repeated,
			float64(f.commands)/float64(*daemonRows), f.late(50), f.late(99))
	})
}

// A fleet is the set of processes of TestClaim_Daemons.
type fleet struct {
	t     *testing.T
	w     *world
	coll  *mongo.Collection
	admin *claim.Admin
	dir   string
	all   []*daemon
	due   map[int]time.Time

	killed, failed, repeated int
	commands                 int64
	lateness                 []time.Duration // of each key's first attempt
}

type daemon struct {
	cmd     *exec.Cmd
	in      io.Closer
	said    bytes.Buffer
	journal string
	gone    chan struct{} // closed when the process has exited
	ended   time.Time     // read only after gone is closed
	killed  bool
}

func (f *fleet) launch() {
	f.t.Helper()
	n := len(f.all)
	s := daemonSettings{URI: f.w.d.uri, Database: f.w.db.Name(), Collection: f.coll.Name(),
		Host: fmt.Sprintf("%sdaemon%d", f.w.prefix, n), Journal: filepath.Join(f.dir, fmt.Sprint(n)),
		Ping: 4 * time.Second, Takeover: daemonTakeover,
		Closing: standstill} // all processes close at the same time
	text := assert.Value(json.Marshal(s))(f.t)
	self, err := os.Executable()
	assert.Must(f.t, err)
	d := &daemon{journal: s.Journal, gone: make(chan struct{}),
		cmd: exec.Command(self, "-test.run=^TestDaemon$", "-test.count=1", "-test.timeout=3h")}
	d.cmd.Env = append(os.Environ(), daemonEnv+"="+string(text))
	d.cmd.Stdout, d.cmd.Stderr = &d.said, &d.said
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		f.t.Fatal(err)
	}
	assert.Must(f.t, d.cmd.Start())
	go func() {
		defer close(d.gone)
		_ = d.cmd.Wait() // the method end checks the exit state
		d.ended = time.Now()
	}()
	f.t.Cleanup(func() { _ = d.cmd.Process.Kill(); <-d.gone }) // the process may have exited
	f.all = append(f.all, d)
}

// plant inserts the rows in random order. The rows of one key are due one after the other.
func (f *fleet) plant(first time.Time) {
	f.due = map[int]time.Time{}
	var list []any
	for i := range *daemonRows {
		after := time.Duration(float64(i) / *daemonRate * float64(time.Second))
		at := first.Add(after).Truncate(time.Millisecond)
		f.due[i] = at
		list = append(list, errand{ID: i, Key: i % *daemonKeys, Due: at})
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	assert.Value(f.coll.InsertMany(f.t.Context(), list))(f.t)
}

// killUntilDone kills a process and starts a new one at intervals, until all rows are done. The
// interval is a second for twenty or more processes and longer for fewer, because a process must
// live for half a minute to rescue rows. While no row is done, the interval is the takeover time.
func (f *fleet) killUntilDone() {
	every := time.Second * time.Duration(max(1, 20 / *daemons))
	var last claim.Counts
	grew, killed := time.Now(), time.Now()
	for tick := time.NewTicker(every); ; <-tick.C {
		c := assert.Value(f.admin.Count(f.t.Context()))(f.t)
		if c.Done == int64(*daemonRows) {
			return
		}
		if c.Done > last.Done {
			grew, last = time.Now(), c
		} else if time.Since(grew) > standstill {
			f.t.Fatalf("nothing was done for %v: %+v", standstill, c)
		} else if time.Since(killed) < daemonTakeover {
			continue
		}
		killed = time.Now()
		living := slices.DeleteFunc(slices.Clone(f.all), func(d *daemon) bool { return d.killed })
		victim := living[rand.IntN(len(living))]
		victim.killed = true
		_ = victim.cmd.Process.Kill() // only Kill ends the process
		<-victim.gone
		f.killed++
		f.launch()
	}
}

// end closes the remaining processes and checks that each exits with success.
func (f *fleet) end() {
	for _, d := range f.all {
		_ = d.in.Close()
	}
	for _, d := range f.all {
		<-d.gone
		if !d.killed && !d.cmd.ProcessState.Success() {
			f.t.Errorf("a process that nobody killed ended with %v:\n%s", d.cmd.ProcessState, &d.said)
		}
	}
}

// A handling is one run of a handler.
type handling struct {
	row, key    int
	from, until int64
	done        bool
}

// judge checks the journals of all processes.
func (f *fleet) judge() {
	keys, dones := map[int][]handling{}, map[int]int{}
	for _, d := range f.all {
		for _, one := range f.handlings(d) {
			keys[one.key] = append(keys[one.key], one)
			if due := f.due[one.row].UnixNano(); one.from < due {
				f.t.Errorf("row %d was begun %v before it was due", one.row, time.Duration(due-one.from))
			}
			if one.done {
				dones[one.row]++
			}
		}
	}
	for row := range *daemonRows {
		if dones[row] == 0 {
			f.t.Errorf("row %d is done, and no handler has ended it", row)
		}
		f.repeated += max(dones[row]-1, 0)
	}
	for key, handlings := range keys {
		slices.SortFunc(handlings, func(a, b handling) int { return cmp.Compare(a.from, b.from) })
		for i, b := range handlings {
			if i == 0 {
				f.lateness = append(f.lateness, time.Duration(b.from-f.due[b.row].UnixNano()))
				continue
			}
			a := handlings[i-1]
			if b.from < a.until {
				f.t.Errorf("key %d: row %d begins %v before row %d ends", key, b.row,
					time.Duration(a.until-b.from), a.row)
			}
			if b.row < a.row || b.row > a.row && !a.done {
				f.t.Errorf("key %d: row %d after row %d, done: %v", key, b.row, a.row, a.done)
			}
		}
	}
}

// handlings returns the handlings of one process. An unfinished handling ends with its process.
func (f *fleet) handlings(d *daemon) (all []handling) {
	text, err := os.ReadFile(d.journal)
	if err != nil && !d.killed {
		f.t.Error(err)
	}
	open := map[int]handling{}
	var commands int64
	for line := range bytes.Lines(text) {
		var n note
		if err := json.Unmarshal(line, &n); err != nil {
			f.t.Fatalf("%s: %v", line, err)
		}
		commands = n.Commands
		if n.Begun {
			open[n.Row] = handling{row: n.Row, key: n.Key, from: n.At}
			continue
		}
		one := open[n.Row]
		delete(open, n.Row)
		one.until, one.done = n.At, !n.Failed
		if n.Failed {
			f.failed++
		}
		all = append(all, one)
	}
	for _, one := range open {
		one.until = d.ended.UnixNano()
		all = append(all, one)
	}
	f.commands += commands
	return all
}

// late returns a percentile of the handlers' lateness.
func (f *fleet) late(percent int) time.Duration {
	slices.Sort(f.lateness)
	return f.lateness[(len(f.lateness)-1)*percent/100].Round(time.Millisecond)
}
