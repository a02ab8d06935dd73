// Package balancer is one balancer process of the demo. It runs a round of mongos' balancer in a
// loop of package singleton, and reads and writes the cluster's metadata. Package cluster decides
// which chunks to move; this package moves them.
//
// A round has three steps: record the round, read the cluster, and move one chunk of each
// collection that needs a move. Package singleton reads from collection distlock_settings when
// rounds may run. After each round the lock goes to the first balancer in the queue. Up to version
// 3.2 mongos polled for the lock. From 3.4 on the lock was held permanently. Every move is guarded
// twice: the lock's guard is checked before it, and its filter contains the fence. So a holder that
// lost the lock cannot undo the moves of its successor.
package balancer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/singleton"
)

// LockName and LockWhy are the lock's name and reason in mongos.
const (
	LockName = "balancer"
	LockWhy  = "doing balance round"
)

// Kind is the kind of an Event.
type Kind string

// The kinds of events.
const (
	Started  Kind = "started"  // the process has its first term
	TookOver Kind = "tookover" // the process got the lock from a dead holder; Text is the evidence
	Entered  Kind = "entered"  // a round has started
	LostLock Kind = "lost"     // the lock was lost; Text is the reason
	Refused  Kind = "refused"  // a write with the old fence, after the loss, matched no document
	Breach   Kind = "breach"   // a write with the old fence, after the loss, changed a document
	Balanced Kind = "balanced" // no chunk needs a move
	Failed   Kind = "failed"   // an error; the next round follows
)

// An Event is a balancer's report to its parent, one line of JSON on its output.
type Event struct {
	Kind    Kind          `json:"kind"`
	Number  int           `json:"number"`
	PID     int           `json:"pid"`
	Process string        `json:"process"`
	Fence   int64         `json:"fence,omitempty"`
	Chunk   string        `json:"chunk,omitempty"` // the chunk of Breach and Refused
	Text    string        `json:"text,omitempty"`
	Waited  time.Duration `json:"waitedNanos,omitempty"` // for the lock; in Entered and TookOver
}

// Pauses of a balancer, shortened for the demo.
const (
	roundPause = 100 * time.Millisecond // between the beginnings of two rounds
	movePause  = 12 * time.Millisecond  // simulates the copying of a chunk
)

// Balancer is one balancer process. It is the observer of its Manager.
type Balancer struct {
	manager *distlock.Manager
	store   *Store
	number  int
	emit    func(Event)
	waited  atomic.Int64 // nanoseconds of the wait for its latest lock
	probing chan int64   // the fences of lost locks
}

// New returns the balancer with the given number. It passes its events to emit. Run starts it.
func New(number int, emit func(Event)) *Balancer {
	return &Balancer{number: number, emit: emit, probing: make(chan int64, 1)}
}

// Observe implements [distlock.Observer].
func (b *Balancer) Observe(e distlock.Event) {
	if e.Name != LockName {
		return
	}
	switch e.Kind {
	case distlock.EventAcquired, distlock.EventGranted, distlock.EventTakenOver:
		b.waited.Store(int64(e.Waited))
		if e.Kind == distlock.EventTakenOver {
			b.say(e.Process, Event{Kind: TookOver, Fence: e.Fence, Text: e.Evidence, Waited: e.Waited})
		}
	case distlock.EventLost:
		b.say(e.Process, Event{Kind: LostLock, Fence: e.Fence, Text: e.Err.Error()})
		select {
		case b.probing <- e.Fence:
		default: // the balancer is still probing
		}
	}
}

// Run runs rounds until ctx ends, in turn with the other balancers. After an error in a round it
// reports the error and goes on. The balancer must be the observer of manager. locks is the
// database with the settings, which control when rounds run.
func (b *Balancer) Run(ctx context.Context, manager *distlock.Manager, store *Store,
	locks singleton.Store) error {
	b.manager, b.store = manager, store
	b.tell(Event{Kind: Started})
	ctx, cancel := context.WithCancel(ctx)
	var probes sync.WaitGroup
	probes.Go(func() {
		for {
			select {
			case fence := <-b.probing:
				b.probe(ctx, fence)
			case <-ctx.Done():
				return
			}
		}
	})
	defer probes.Wait()
	defer cancel()
	return singleton.Run(ctx, manager, singleton.Loop{Name: LockName, Why: LockWhy, Store: locks,
		Every: roundPause, Turn: 1, Zone: time.Local, Do: b.round})
}

func (b *Balancer) tell(e Event) { b.say(b.manager.Process(), e) }

func (b *Balancer) say(process string, e Event) {
	e.Number, e.PID, e.Process = b.number, os.Getpid(), process
	b.emit(e)
}

// round does the work under the lock.
func (b *Balancer) round(_ context.Context, guard *distlock.TryGuard) (err error) {
	ctx := guard.Context()
	defer func() {
		if err != nil && guard.Err() == nil {
			b.tell(Event{Kind: Failed, Text: err.Error()})
		}
	}()
	entered, err := b.store.Tick(ctx)
	if err != nil {
		return err
	}
	r := cluster.NewRound(guard.Process(), guard.Fence(), entered)
	if guard.Err() != nil { // first the stamp, then the guard: see cluster.Round
		return nil
	}
	if err := b.store.Save(ctx, r); err != nil {
		return err
	}
	b.tell(Event{Kind: Entered, Fence: r.Fence, Waited: time.Duration(b.waited.Load())})
	err = b.migrate(ctx, guard, &r)
	if err == nil && guard.Err() == nil {
		r.Left, err = b.store.Tick(ctx)
	}
	r.Outcome = cluster.Done
	if guard.Err() != nil {
		r.Outcome, r.Left = cluster.Lost, bson.Timestamp{}
	}
	if err != nil && r.Outcome == cluster.Done {
		return err // the round stays unfinished in the records
	}
	limit := b.manager.Config().CommandTimeout
	record, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	return b.store.Save(record, r)
}

func (b *Balancer) migrate(ctx context.Context, guard *distlock.TryGuard, r *cluster.Round) error {
	now, err := b.store.Read(ctx)
	if err != nil {
		return err
	}
	moves := cluster.Candidates(now)
	if len(moves) == 0 {
		b.tell(Event{Kind: Balanced, Fence: r.Fence})
	}
	for _, m := range moves {
		clock.Sleep(clock.System(), movePause, ctx.Done())
		if guard.Err() != nil {
			return nil
		}
		at, err := b.store.Move(ctx, m, r.Fence, now.NextVersion(m.Chunk.NS))
		if err != nil {
			return err
		}
		host, wall := b.manager.Config().Host, clock.System().Now().Wall
		change := m.Changed(r.Process, r.Fence, at, host, os.Getpid(), wall)
		if err := b.store.Record(ctx, change); err != nil {
			return err
		}
		r.Moves++
	}
	return nil
}

// probe imitates a careless program that continues its work after it lost the lock. With the old
// fence it tries to move a chunk that a newer holder has moved. The filter must match nothing.
func (b *Balancer) probe(ctx context.Context, fence int64) {
	now, err := b.store.Read(ctx)
	if err != nil {
		b.tell(Event{Kind: Failed, Fence: fence, Text: catalog.Printable(err.Error(), 200)})
		return
	}
	for _, chunk := range now.Chunks {
		if chunk.Fence <= fence {
			continue
		}
		to := now.Shards[0].ID
		if to == chunk.Shard {
			to = now.Shards[len(now.Shards)-1].ID
		}
		stale := cluster.Migration{Chunk: chunk, From: chunk.Shard, To: to}
		_, err = b.store.Move(ctx, stale, fence, chunk.Lastmod)
		e := Event{Kind: Breach, Fence: fence, Chunk: chunk.Name()}
		if errors.Is(err, ErrStale) {
			e.Kind, e.Text = Refused, fmt.Sprintf("chunk carries fence %d", chunk.Fence)
		} else if err != nil {
			e.Kind, e.Text = Failed, catalog.Printable(err.Error(), 200)
		}
		b.tell(e)
		return
	}
}
