package balancer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// LockName and LockWhy are what mongos used.
const (
	LockName = "balancer"
	LockWhy  = "doing balance round"
)

// Kind is what an Event tells.
type Kind string

// The kinds of events.
const (
	Started  Kind = "started"  // the process has its first term
	Idle     Kind = "idle"     // settings forbid a round; Text says why
	Waiting  Kind = "waiting"  // the time to wait in line was over; Text says who holds the lock
	TookOver Kind = "tookover" // got the lock from a dead holder; Text is the evidence
	Entered  Kind = "entered"  // a round has begun
	MovedOne Kind = "moved"    // a chunk was moved
	Left     Kind = "left"     // a round has ended with the lock still held
	LostLock Kind = "lost"     // the lock was lost during the round; Text says why
	Refused  Kind = "refused"  // a write with the old fence, after the loss, matched nothing
	Breach   Kind = "breach"   // a write with the old fence, after the loss, went through
	Balanced Kind = "balanced" // nothing left to move
	Failed   Kind = "failed"   // something went wrong; the next round comes
)

// An Event is what a balancer tells whoever watches it. It is one line of JSON on its output.
type Event struct {
	Kind    Kind   `json:"kind"`
	Number  int    `json:"number"`
	PID     int    `json:"pid"`
	Process string `json:"process"`
	Fence   int64  `json:"fence,omitempty"`
	NS      string `json:"ns,omitempty"`
	Chunk   string `json:"chunk,omitempty"`
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	Text    string `json:"text,omitempty"`
	// Waited is how long it waited for the lock that it has got; of Entered and TookOver.
	Waited time.Duration `json:"waitedNanos,omitempty"`
}

// Pauses of a balancer, shortened for the demo.
const (
	roundPause = 100 * time.Millisecond // between two rounds
	movePause  = 12 * time.Millisecond  // stands for the copying of a chunk
	// lineWait is how long a balancer stands in line for the lock before it reads the settings again;
	// mongos slept as long between two rounds.
	lineWait = 10 * time.Second
)

// Balancer is one balancer process.
type Balancer struct {
	manager *distlock.Manager
	lock    *distlock.DistributedLock
	store   *Store
	number  int
	emit    func(Event)
	clock   clock.Clock
}

// New makes the balancer that is called by number; Run runs it, and tells its events by emit.
func New(manager *distlock.Manager, store *Store, number int, emit func(Event)) *Balancer {
	return &Balancer{manager: manager, lock: manager.Lock(LockName), store: store, number: number,
		emit: emit, clock: clock.System()}
}

// Run does rounds until ctx ends. An error of a round is told and the next round comes.
func (b *Balancer) Run(ctx context.Context) {
	b.tell(Event{Kind: Started})
	for ctx.Err() == nil {
		if err := b.once(ctx); err != nil && ctx.Err() == nil {
			b.tell(Event{Kind: Failed, Text: err.Error()})
		}
		pause(ctx, roundPause)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (b *Balancer) tell(e Event) {
	e.Number, e.PID, e.Process = b.number, os.Getpid(), b.manager.Process()
	b.emit(e)
}

func (b *Balancer) now() time.Time { return b.clock.Now().Wall.Local() }

// may reads the settings and reports whether they allow a round now.
func (b *Balancer) may(ctx context.Context) (bool, error) {
	settings, err := b.store.Settings(ctx)
	if err != nil {
		return false, err
	}
	ok, why := settings.MayRun(b.now())
	if !ok {
		b.tell(Event{Kind: Idle, Text: why})
	}
	return ok, nil
}

// once is one pass of the loop: at most one round. A balancer that has to wait stands in line, and
// the release of whoever is before it grants it the lock.
func (b *Balancer) once(ctx context.Context) error {
	if ok, err := b.may(ctx); err != nil || !ok {
		return err
	}
	start := b.clock.Now().Mono
	guard, err := b.lock.Lock(ctx, distlock.Why(LockWhy), distlock.Label("Balancer"),
		distlock.WaitAtMost(lineWait))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case errors.Is(err, distlock.ErrHeld):
		b.tell(Event{Kind: Waiting, Text: err.Error()})
		return nil
	case err != nil:
		return err
	}
	waited := b.clock.Now().Mono - start
	if evidence := guard.TakeoverEvidence(); evidence != "" {
		b.tell(Event{Kind: TookOver, Fence: guard.Fence(), Text: evidence, Waited: waited})
	}
	ok, err := b.may(guard.Context()) // it may have waited for long
	if ok && err == nil {
		err = b.round(guard, waited)
	}
	if guard.Err() != nil {
		b.tell(Event{Kind: LostLock, Fence: guard.Fence(), Text: guard.Err().Error()})
		b.probe(ctx, guard.Fence())
		err = nil
	}
	if released := guard.Release(); !errors.Is(released, distlock.ErrLockLost) {
		err = errors.Join(err, released)
	}
	return err
}

// round is the work under the lock, for which the balancer has waited.
func (b *Balancer) round(guard *distlock.TryGuard, waited time.Duration) error {
	ctx := guard.Context()
	r := cluster.Round{Process: guard.Process(), Fence: guard.Fence()}
	var err error
	if r.Entered, err = b.store.Tick(ctx); err != nil {
		return err
	}
	if guard.Err() != nil { // the stamp, then the guard: see cluster.Round
		return nil
	}
	if err := b.store.Begin(ctx, r); err != nil {
		return err
	}
	b.tell(Event{Kind: Entered, Fence: r.Fence, Waited: waited})
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
	if err := b.store.Finish(record, r); err != nil {
		return err
	}
	if r.Outcome == cluster.Done {
		b.tell(Event{Kind: Left, Fence: r.Fence})
	}
	return nil
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
		pause(ctx, movePause)
		if guard.Err() != nil {
			return nil
		}
		if err := b.move(ctx, guard, m, now.NextVersion(m.Chunk.NS)); err != nil {
			return err
		}
		r.Moves++
	}
	return nil
}

func (b *Balancer) move(ctx context.Context, guard *distlock.TryGuard, m cluster.Migration,
	version bson.Timestamp) error {
	at, err := b.store.Move(ctx, m, guard.Fence(), version)
	if err != nil {
		return err
	}
	b.tell(Event{
		Kind: MovedOne, Fence: guard.Fence(), NS: m.Chunk.NS, Chunk: m.Chunk.Name(),
		From: m.From, To: m.To, Text: m.Why,
	})
	host := b.manager.Config().Host
	return b.store.Record(ctx, cluster.Change{
		Host: host, Server: fmt.Sprintf("%s:%d", host, os.Getpid()), Time: b.now(),
		Serial: bson.NewObjectID(), NS: m.Chunk.NS, Chunk: m.Chunk.Name(),
		Min: m.Chunk.Min, Max: m.Chunk.Max, From: m.From, To: m.To,
		Process: guard.Process(), Fence: guard.Fence(), MovedAt: at,
	})
}

// probe is what a careless program would do after it lost the lock: go on with its work. It tries
// to move a chunk that a newer holder has moved meanwhile, with the old fence. The filter must match
// nothing.
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
		e := Event{Kind: Breach, Fence: fence, NS: chunk.NS, Chunk: chunk.Name()}
		if errors.Is(err, ErrStale) {
			e.Kind, e.Text = Refused, fmt.Sprintf("chunk carries fence %d", chunk.Fence)
		} else if err != nil {
			e.Kind, e.Text = Failed, catalog.Printable(err.Error(), 200)
		}
		b.tell(e)
		return
	}
}
