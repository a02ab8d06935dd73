package claim

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
)

// gate passes every command to the rows through a hook, and counts them.
type gate struct {
	rows.Store
	mu     sync.Mutex // guards the rest
	hook   func(ctx context.Context, command string, apply func() error) error
	counts map[string]int

	deaf    bool                           // there is none
	forgets bool                           // it does not say when rows are due
	late    func(rows.Event) time.Duration // by how much the stream tells of it late; nil: at once
	ends    chan struct{}                  // the stream ends when it is closed; nil: it does not
	inside  *[]rows.Ending                 // what the transaction ends; nil: there are none
	odd     []rows.Malformed               // they come before all others
}

func (g *gate) set(hook func(context.Context, string, func() error) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hook = hook
}

// lag makes the stream tell so late, in order.
func (g *gate) lag(least, most time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.late = func(rows.Event) time.Duration { return least + rand.N(most-least+1) }
}

// Watch tells events as late as the gate says, never when that is negative.
func (g *gate) Watch(ctx context.Context, tell func(rows.Event)) error {
	if g.deaf {
		return rows.ErrNoStream
	}
	type late struct {
		rows.Event
		at time.Time
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var mu sync.Mutex // guards events
	var events []late
	more := make(chan struct{}, 1)
	var telling sync.WaitGroup
	defer func() { cancel(nil); telling.Wait() }()
	telling.Go(func() {
		for {
			mu.Lock()
			these := events
			events = nil
			mu.Unlock()
			for _, event := range these {
				// A timer that is over before anybody waits for it crashes the race detector (Go 1.26).
				if clock.Sleep(clock.System(), time.Until(event.at), ctx.Done()) {
					tell(event.Event)
				}
			}
			if len(these) > 0 {
				continue
			}
			select {
			case <-more:
			case <-ctx.Done():
				return
			}
		}
	})
	telling.Go(func() {
		select {
		case <-g.ends:
			cancel(errCut)
		case <-ctx.Done():
		}
	})
	return g.Store.Watch(ctx, func(event rows.Event) {
		if g.forgets {
			event.Due = time.Time{}
		}
		g.mu.Lock()
		by := time.Duration(0)
		if g.late != nil && event.Kind != rows.Opened {
			by = g.late(event)
		}
		g.mu.Unlock()
		if by >= 0 {
			mu.Lock()
			events = append(events, late{event, time.Now().Add(by)})
			mu.Unlock()
			signal(more)
		}
	})
}

// on passes commands of these names through a hook.
func (g *gate) on(hook func(apply func() error) error, commands ...string) {
	g.set(func(_ context.Context, command string, apply func() error) error {
		if slices.Contains(commands, command) {
			return hook(apply)
		}
		return apply()
	})
}

// fail lets no command of these names through.
func (g *gate) fail(commands ...string) {
	g.on(func(func() error) error { return errCut }, commands...)
}

// sent is how many commands were sent to claim rows and to end claims.
func (g *gate) sent() int {
	return g.count("held", "settle", "later", "mark one", "candidates", "mark", "marked", "finish",
		"current")
}

func (g *gate) count(commands ...string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, command := range commands {
		n += g.counts[command]
	}
	return n
}

// tally is how often each command was sent.
func (g *gate) tally() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.counts)
}

func pass[T any](ctx context.Context, g *gate, command string, apply func() (T, error)) (T, error) {
	g.mu.Lock()
	if g.counts == nil {
		g.counts = map[string]int{}
	}
	g.counts[command]++
	hook := g.hook
	g.mu.Unlock()
	var none, got T
	if hook == nil {
		return apply()
	}
	err := hook(ctx, command, func() (err error) { got, err = apply(); return err })
	if err != nil {
		return none, err
	}
	return got, nil
}

func (g *gate) Candidates(ctx context.Context, n, skip int, ask *rows.Ask) (
	[]rows.Row, []rows.Malformed, error) {
	type listed struct {
		found []rows.Row
		bad   []rows.Malformed
	}
	got, err := pass(ctx, g, "candidates", func() (listed, error) {
		bad := g.odd[min(skip, len(g.odd)):]
		if ask != nil {
			without := map[string]bool{}
			for _, id := range ask.Without {
				without[rows.Key(id)] = true
			}
			bad = slices.DeleteFunc(slices.Clone(bad), func(one rows.Malformed) bool {
				return without[rows.Key(one.ID)]
			})
		}
		if bad = bad[:min(n, len(bad))]; len(bad) == n {
			return listed{nil, bad}, nil
		}
		found, _, err := g.Store.Candidates(ctx, n-len(bad), max(skip-len(g.odd), 0), ask)
		return listed{found, bad}, err
	})
	return got.found, got.bad, err
}

func (g *gate) Mark(ctx context.Context, ids []bson.RawValue, c rows.Claim) error {
	_, err := pass(ctx, g, "mark", func() (int, error) { return 0, g.Store.Mark(ctx, ids, c) })
	return err
}

func (g *gate) Marked(ctx context.Context, ids []bson.RawValue, c rows.Claim) ([]rows.Row, error) {
	return pass(ctx, g, "marked", func() ([]rows.Row, error) { return g.Store.Marked(ctx, ids, c) })
}

func (g *gate) MarkOne(ctx context.Context, c rows.Claim, ask *rows.Ask) (*rows.Row, error) {
	return pass(ctx, g, "mark one", func() (*rows.Row, error) { return g.Store.MarkOne(ctx, c, ask) })
}

func (g *gate) Finish(ctx context.Context, ends []rows.Ending) (int, error) {
	return pass(ctx, g, "finish", func() (int, error) { return g.Store.Finish(ctx, ends) })
}

func (g *gate) Current(ctx context.Context, ids []bson.RawValue) ([]rows.Row, error) {
	return pass(ctx, g, "current", func() ([]rows.Row, error) { return g.Store.Current(ctx, ids) })
}

func (g *gate) Tidy(ctx context.Context, now time.Time, of rows.Slot, fence, most int64) (
	int, error) {
	return pass(ctx, g, "tidy", func() (int, error) { return g.Store.Tidy(ctx, now, of, fence, most) })
}

func (g *gate) Batches(ctx context.Context, of rows.Slot, s bson.ObjectID) (
	[]bson.ObjectID, error) {
	return pass(ctx, g, "batches", func() ([]bson.ObjectID, error) {
		return g.Store.Batches(ctx, of, s)
	})
}

func (g *gate) GiveBack(ctx context.Context, s bson.ObjectID, batches []bson.ObjectID) (
	int, error) {
	return pass(ctx, g, "give back", func() (int, error) { return g.Store.GiveBack(ctx, s, batches) })
}

func (g *gate) Renew(ctx context.Context, row rows.Row) (int, error) {
	return pass(ctx, g, "renew", func() (int, error) { return g.Store.Renew(ctx, row) })
}

func (g *gate) Leased(ctx context.Context) ([]rows.Row, error) {
	return pass(ctx, g, "leased", func() ([]rows.Row, error) { return g.Store.Leased(ctx) })
}

func (g *gate) Expire(ctx context.Context, now time.Time, row rows.Row, most int64) (int, error) {
	return pass(ctx, g, "expire", func() (int, error) { return g.Store.Expire(ctx, now, row, most) })
}

func (g *gate) Odd(ctx context.Context) ([]rows.Malformed, error) {
	return pass(ctx, g, "odd", func() ([]rows.Malformed, error) { return g.Store.Odd(ctx) })
}

func (g *gate) Held(ctx context.Context, of []bson.RawValue) ([]bson.RawValue, bool, error) {
	type held struct {
		keys []bson.RawValue
		all  bool
	}
	got, err := pass(ctx, g, "held", func() (held, error) {
		keys, all, err := g.Store.Held(ctx, of)
		return held{keys, all}, err
	})
	return got.keys, got.all, err
}

func (g *gate) Settle(ctx context.Context, keys []bson.RawValue) (int, error) {
	return pass(ctx, g, "settle", func() (int, error) { return g.Store.Settle(ctx, keys) })
}

func (g *gate) Now(ctx context.Context) (time.Time, error) {
	return pass(ctx, g, "clock", func() (time.Time, error) { return g.Store.Now(ctx) })
}

func (g *gate) Cancel(ctx context.Context, now time.Time, id bson.RawValue) (rows.State, error) {
	return pass(ctx, g, "cancel", func() (rows.State, error) { return g.Store.Cancel(ctx, now, id) })
}

func (g *gate) Dying(ctx context.Context, of rows.Slot, fence, n int64) ([]bson.RawValue, error) {
	return pass(ctx, g, "dying", func() ([]bson.RawValue, error) {
		return g.Store.Dying(ctx, of, fence, n)
	})
}

func (g *gate) Documents(ctx context.Context, ids []bson.RawValue) ([]rows.Row, error) {
	return pass(ctx, g, "documents", func() ([]rows.Row, error) { return g.Store.Documents(ctx, ids) })
}

func (g *gate) Purge(ctx context.Context, state rows.State, before time.Time) (int, error) {
	return pass(ctx, g, "purge", func() (int, error) { return g.Store.Purge(ctx, state, before) })
}

func (g *gate) Later(ctx context.Context, after time.Time, n int) ([]rows.Coming, error) {
	return pass(ctx, g, "later", func() ([]rows.Coming, error) { return g.Store.Later(ctx, after, n) })
}

func (g *gate) Insert(ctx context.Context, docs []any) error {
	_, err := pass(ctx, g, "insert", func() (int, error) { return 0, g.Store.Insert(ctx, docs) })
	return err
}

func (g *gate) FinishIn(ctx context.Context, end rows.Ending) (int, error) {
	return pass(ctx, g, "finish", func() (int, error) {
		found, err := g.Store.Current(ctx, []bson.RawValue{end.ID})
		if err != nil || len(found) == 0 || found[0].Mark.State != rows.Claimed ||
			found[0].Mark.Batch != end.Batch {
			return 0, err
		}
		*g.inside = append(*g.inside, end)
		return 1, nil
	})
}

// errAborted is of a commit that was certainly not carried out: the transaction is run again.
var errAborted = errors.New("aborted on purpose")

func (g *gate) Transact(ctx context.Context, work func(context.Context) error) error {
	if g.inside == nil {
		return g.Store.Transact(ctx, work)
	}
	*g.inside = nil
	if err := work(ctx); err != nil {
		return err
	}
	_, err := pass(ctx, g, "commit", func() (int, error) { return g.Store.Finish(ctx, *g.inside) })
	if errors.Is(err, errAborted) { // as the driver does
		return g.Transact(ctx, work)
	}
	return err
}

func (g *gate) Slots(ctx context.Context) ([]rows.Slot, error) {
	return pass(ctx, g, "slots", func() ([]rows.Slot, error) { return g.Store.Slots(ctx) })
}
