package claim

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/fault"
)

// gate is a store that passes every command through a hook.
type gate struct {
	rows.Store
	fault.Gate
	deaf bool          // the store has no change stream
	late time.Duration // the longest delay of an event; set before Watch
}

// Watch delays events and keeps their order.
func (g *gate) Watch(ctx context.Context, report func(rows.Event)) error {
	if g.deaf {
		return rows.ErrNoStream
	}
	type late struct {
		rows.Event
		at time.Time
	}
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan late, 10_000)
	var reporting sync.WaitGroup
	defer func() { cancel(); reporting.Wait() }()
	reporting.Go(func() {
		for {
			select {
			case one := <-events:
				if clock.Sleep(clock.System(), time.Until(one.at), ctx.Done()) {
					report(one.Event)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return g.Store.Watch(ctx, func(event rows.Event) {
		by := time.Duration(0)
		if event.Kind != rows.Opened {
			by = rand.N(g.late + 1)
		}
		events <- late{event, time.Now().Add(by)}
	})
}

// The hook applies only to the given commands.
func (g *gate) on(hook func(apply func() error) error, commands ...string) {
	g.Set(func(_ context.Context, command string, apply func() error) error {
		if slices.Contains(commands, command) {
			return hook(apply)
		}
		return apply()
	})
}

func pass[T any](ctx context.Context, g *gate, command string, apply func() (T, error)) (T, error) {
	return fault.Pass(ctx, &g.Gate, command, apply)
}

func (g *gate) Claim(ctx context.Context, c rows.Claim, ask rows.Ask) (*rows.Row, error) {
	return pass(ctx, g, "claim", func() (*rows.Row, error) { return g.Store.Claim(ctx, c, ask) })
}

func (g *gate) First(ctx context.Context, ask rows.Ask) (bson.RawValue, error) {
	return pass(ctx, g, "first", func() (bson.RawValue, error) { return g.Store.First(ctx, ask) })
}

func (g *gate) Held(ctx context.Context) ([]bson.RawValue, error) {
	return pass(ctx, g, "held", func() ([]bson.RawValue, error) { return g.Store.Held(ctx) })
}

func (g *gate) Settle(ctx context.Context) (int, error) {
	return pass(ctx, g, "settle", func() (int, error) { return g.Store.Settle(ctx) })
}

func (g *gate) End(ctx context.Context, ends ...rows.Ending) (int, error) {
	return pass(ctx, g, "end", func() (int, error) { return g.Store.End(ctx, ends...) })
}

func (g *gate) Claimed(ctx context.Context, of rows.Slot) ([]rows.Row, error) {
	return pass(ctx, g, "claimed", func() ([]rows.Row, error) { return g.Store.Claimed(ctx, of) })
}

func (g *gate) Read(ctx context.Context, id bson.RawValue) (*rows.Row, error) {
	return pass(ctx, g, "current", func() (*rows.Row, error) { return g.Store.Read(ctx, id) })
}

func (g *gate) Wake(ctx context.Context, now time.Time) (int, error) {
	return pass(ctx, g, "wake", func() (int, error) { return g.Store.Wake(ctx, now) })
}

func (g *gate) Slots(ctx context.Context) ([]rows.Slot, error) {
	return pass(ctx, g, "slots", func() ([]rows.Slot, error) { return g.Store.Slots(ctx) })
}

func (g *gate) Odd(ctx context.Context, among int) ([]rows.Malformed, error) {
	return pass(ctx, g, "odd", func() ([]rows.Malformed, error) { return g.Store.Odd(ctx, among) })
}

func (g *gate) Purge(ctx context.Context, state rows.State, before time.Time) (int, error) {
	return pass(ctx, g, "purge", func() (int, error) { return g.Store.Purge(ctx, state, before) })
}

func (g *gate) Later(ctx context.Context, from time.Time, n int) ([]rows.Event, error) {
	return pass(ctx, g, "later", func() ([]rows.Event, error) { return g.Store.Later(ctx, from, n) })
}

func (g *gate) Now(ctx context.Context) (time.Time, error) {
	return pass(ctx, g, "clock", func() (time.Time, error) { return g.Store.Now(ctx) })
}

func (g *gate) Paused(ctx context.Context, queue string) (bool, error) {
	return pass(ctx, g, "paused", func() (bool, error) { return g.Store.Paused(ctx, queue) })
}
