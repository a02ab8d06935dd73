// Package balancer implements one balancer process of the demo. The process works in rounds, like
// the balancer of mongos. Package cluster chooses the chunks to move. Package balancer moves them
// in the metadata of the cluster.
//
// Package singleton starts the rounds at the times that the collection distlock_settings allows. A
// balancer runs a round while it holds the lock. It records the start of the round, reads the
// cluster, and moves at most one chunk of each collection. After each round, the lock goes to the
// first balancer in the queue.
//
// Before each move, the balancer checks that it still holds the lock. The update of the move also
// compares fences in its filter. A process that lost the lock therefore cannot undo a move of a
// later holder.
package balancer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/singleton"
)

// LockName is the name of the balancer lock in mongos. LockWhy is the reason that mongos stores in
// the lock document.
const (
	LockName = "balancer"
	LockWhy  = "doing balance round"
)

// Kind is the kind of an Event.
type Kind string

// The kinds of events.
const (
	Started  Kind = "started"  // the process is ready to run rounds
	TookOver Kind = "tookover" // the lock of a dead holder was taken over; Text is the evidence
	Entered  Kind = "entered"  // a round has started
	LostLock Kind = "lost"     // the lock was lost; Text is the reason
	Balanced Kind = "balanced" // no chunk needs a move
	Failed   Kind = "failed"   // a round failed; Text is the error
)

// An Event is a message from a balancer to its parent process. It is sent as one line of JSON.
type Event struct {
	Kind    Kind          `json:"kind"`
	Number  int           `json:"number"`
	PID     int           `json:"pid"`
	Process string        `json:"process"`
	Fence   int64         `json:"fence,omitempty"`
	Text    string        `json:"text,omitempty"`
	Waited  time.Duration `json:"waitedNanos,omitempty"` // for the lock; in Entered and TookOver
}

const (
	closeLimit = 10 * time.Second // bounds the commands at the end of the process

	// The pauses of a balancer, shortened for the demo.
	roundPause = 100 * time.Millisecond // between the starts of two rounds
	movePause  = 12 * time.Millisecond  // simulates the copying of a chunk
)

// Balancer runs the rounds of one balancer process. It is an Observer of the Manager of the
// process.
type Balancer struct {
	manager *distlock.Manager
	store   *Store
	number  int
	mu      sync.Mutex // serializes the writes of events
	events  *json.Encoder
	waited  atomic.Int64 // the latest wait for the lock, in nanoseconds
}

// New returns the balancer with the given number. The balancer writes its events to out, one JSON
// object per line.
func New(number int, store *Store, out io.Writer) *Balancer {
	return &Balancer{number: number, store: store, events: json.NewEncoder(out)}
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
	}
}

// Run runs the rounds of the balancer until ctx ends, and then closes manager. The balancers of a
// cluster take turns. If a round fails, Run writes an event with the error and continues. The
// configuration of manager must name the balancer as an Observer. The documents in settings
// determine the times at which rounds run.
func (b *Balancer) Run(ctx context.Context, manager *distlock.Manager,
	settings singleton.Store) error {
	b.manager = manager
	b.tell(Event{Kind: Started})
	err := singleton.Run(ctx, manager, singleton.Loop{Name: LockName, Why: LockWhy, Store: settings,
		Every: roundPause, Turn: 1, Zone: time.Local, Do: b.round})
	end, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	return errors.Join(err, manager.Close(end))
}

func (b *Balancer) tell(e Event) { b.say(b.manager.Process(), e) }

func (b *Balancer) say(process string, e Event) {
	e.Number, e.PID, e.Process = b.number, os.Getpid(), process
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.events.Encode(e) // the parent may have exited
}

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
	r := cluster.Round{ID: fmt.Sprintf("%s/%d", guard.Process(), guard.Fence()), Number: b.number,
		Process: guard.Process(), Fence: guard.Fence(), Entered: entered}
	if guard.Err() != nil { // check the guard after the stamp: see cluster.Round
		return nil
	}
	if err := b.store.Save(ctx, r); err != nil {
		return err
	}
	b.tell(Event{Kind: Entered, Fence: r.Fence, Waited: time.Duration(b.waited.Load())})
	if err := b.migrate(ctx, guard, &r); err != nil || guard.Err() != nil {
		return err // the round stays unfinished in the records
	}
	if r.Left, err = b.store.Tick(ctx); err != nil || guard.Err() != nil {
		return err
	}
	return b.store.Save(ctx, r)
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
		at, err := b.store.Move(ctx, m, r.Fence)
		if err != nil {
			return err
		}
		r.Moves = append(r.Moves, cluster.Move{Chunk: m.Chunk.Name(), To: m.To, At: at})
		if err := b.store.Save(ctx, *r); err != nil {
			return err
		}
	}
	return nil
}
