package simulation

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// A view is the store that one process sees. It returns old states if a fault requires them, and
// sessions in the form that the process knows. It records its answers for the timeline.
type view struct {
	*store
	p *process
}

// callOf returns the call of a store operation's context, or nil if the operation is not an event.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

func pictureOf(ctx context.Context) *picture {
	if c := callOf(ctx); c != nil {
		return c.picture
	}
	return nil
}

// shown records a call's answer and returns the answer.
func shown[T any](ctx context.Context, answer T, err error, show func(T) string) (T, error) {
	if c := callOf(ctx); c != nil && err == nil {
		c.show = func() string { return show(answer) }
	}
	return answer, err
}

// Apply implements [catalog.Locks].
func (v view) Apply(ctx context.Context, t catalog.Transition) (catalog.Lock, []catalog.Grant,
	error) {
	l, grants, err := v.store.Apply(ctx, t)
	_, _ = shown(ctx, l, err, func(l catalog.Lock) string {
		switch t := t.(type) {
		case transition.Leave, transition.Evict, transition.GrantNext:
			return showGrants(grants)
		case transition.Renew:
			return fmt.Sprintf("renewal %d", t.Number)
		case transition.Enter:
			if p, ok := l.HeldBy(t.TS); ok {
				return fmt.Sprintf("held, fence %d", p.Fence)
			}
			return fmt.Sprintf("waits, place %d of %d", placeOf(l, t.TS)+1, len(l.Waiters))
		}
		return showLock(l)
	})
	return l, grants, err
}

func showLock(l catalog.Lock) string { return fmt.Sprintf("held, fence %d", l.Fence) }

func showGrants(grants []catalog.Grant) string {
	if len(grants) == 0 {
		return "nobody is granted"
	}
	var told []string
	for _, a := range grants {
		told = append(told, fmt.Sprintf("%s is granted fence %d", a.Process, a.Fence))
	}
	return strings.Join(told, ", ")
}

// Read implements [catalog.Locks]. It is linearizable, so it never returns an old state.
func (v view) Read(ctx context.Context, name string) (catalog.Lock, error) {
	l, err := v.store.Read(ctx, name)
	l.TS, _ = v.p.snapshot.own(name, l.TS)
	l.Process = v.p.local(l.Process)
	return l, err
}

// List implements [catalog.Locks]. If waited is true, it reads all rows at one instant.
func (v view) List(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error] {
	if !waited {
		return v.store.List(ctx, false)
	}
	type row struct {
		catalog.Snapshot
		err error
	}
	return func(yield func(catalog.Snapshot, error) bool) {
		var rows []row
		for h, err := range v.store.List(ctx, true) {
			rows = append(rows, row{h, err})
		}
		_, _ = shown(ctx, rows, nil,
			func(rows []row) string { return fmt.Sprintf("%d lines", len(rows)) })
		for _, r := range rows {
			if !yield(r.Snapshot, r.err) {
				return
			}
		}
	}
}

// Ping implements [catalog.Pings].
func (v view) Ping(ctx context.Context, b catalog.Heartbeat) (catalog.Pinged, error) {
	p, err := v.store.Ping(ctx, b)
	return shown(ctx, p, err, func(p catalog.Pinged) string { return fmt.Sprintf("seq %d", p.Seq) })
}

// Held implements [catalog.Pings].
func (v view) Held(ctx context.Context, process string) ([]catalog.HeldSession, error) {
	sessions, err := v.store.held(process, pictureOf(ctx))
	return shown(ctx, v.p.snapshot.held(sessions), err, func(s []catalog.HeldSession) string {
		return fmt.Sprintf("%d sessions", len(s))
	})
}

// Hello implements [catalog.Pings].
func (v view) Hello(ctx context.Context) (catalog.Server, error) {
	s, err := v.store.Hello(ctx)
	s.ChangeStreams = v.w.s.Streams
	return shown(ctx, s, err, func(s catalog.Server) string { return s.Primary })
}

// Snapshots implements [catalog.Queues].
func (v view) Snapshots(ctx context.Context, names []string) (map[string]catalog.Snapshot, error) {
	looks, err := v.store.attend(names, pictureOf(ctx))
	if c := callOf(ctx); c != nil {
		c.looks = looks
	}
	return shown(ctx, looks, err, func(looks map[string]catalog.Snapshot) string {
		var told []string
		for _, name := range names {
			told = append(told, v.w.log.look(looks[name]))
		}
		return strings.Join(told, "; ")
	})
}

// HeldOrFree implements [catalog.Queues].
func (v view) HeldOrFree(ctx context.Context, process string, names,
	lines []string) ([]catalog.Lock, error) {
	return shown(ctx, v.store.heldOrFree(process, names, lines, pictureOf(ctx)), nil,
		func(locks []catalog.Lock) string {
			var grants []catalog.Grant
			free := 0
			for _, l := range locks {
				if grants = append(grants, l.GrantsOf(process)...); !l.Held {
					free++
				}
			}
			return fmt.Sprintf("%s, %d free", showGrants(grants), free)
		})
}

// GrantStream implements [catalog.Queues].
func (v view) GrantStream(_ context.Context, process string) (catalog.GrantStream, error) {
	s := newStream(v.p, process)
	v.open(s)
	return s, nil
}
