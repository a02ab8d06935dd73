package claim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
)

// What a process keeps of held keys where they are more than one command tells, and for how long at
// least; and of how many rows it asks whose keys those are: first, and twice as many after each
// question that brought none, up to the last.
const (
	mostLearnt      = 50_000
	mostLearntBytes = 8 << 20
	learntFor       = time.Second
	learntAtOnce    = 1000
	learntAtMost    = 8 * learntAtOnce
)

// A learning is what a process knows of the held keys where they are more than one command tells.
// It belongs to the engine, whose mutex guards it.
type learning struct {
	since  time.Duration // it began, by the monotonic clock
	until  time.Duration // it is over, by the same
	rows   int           // that are asked for at a time
	events int64         // that the stream had told when it began
	keys   map[string]bson.RawValue
	size   int // bytes of keys
}

// add keeps keys, as far as there is room.
func (l *learning) add(keys []bson.RawValue) {
	for _, key := range keys {
		if l.isFull() {
			return
		}
		l.keys[rows.KeyText(key)] = key
		l.size += len(key.Value)
	}
}

func (l *learning) isFull() bool { return len(l.keys) >= mostLearnt || l.size >= mostLearntBytes }

// held are the keys that are left out of a question: those that rows at work hold, or what was
// learnt of them a moment ago. One command, or none.
func (e *engine) held(ctx context.Context, asked *question) ([]bson.RawValue, error) {
	e.mu.Lock()
	l := e.learnt
	if asked.short = l != nil && e.clock.Now().Mono < l.until; asked.short {
		defer e.mu.Unlock()
		asked.events = min(asked.events, l.events) // what was told since then may be free
		return slices.Collect(maps.Values(l.keys)), nil
	}
	e.learnt = nil
	e.mu.Unlock()
	l = &learning{since: e.clock.Now().Mono, rows: learntAtOnce, events: asked.events,
		keys: map[string]bson.RawValue{}}
	keys, all, err := e.store.Held(ctx, nil)
	if asked.short = err == nil && !all; asked.short {
		l.add(keys)
		e.mu.Lock()
		l.until, e.learnt = e.clock.Now().Mono+learntFor, l
		e.mu.Unlock()
	}
	return keys, err
}

// learns is of how many rows to ask where the held keys are more than one command tells, else zero.
func (e *engine) learns() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.learnt == nil {
		return 0
	}
	return e.learnt.rows
}

// free leaves those of the rows out whose keys are held, and keeps these keys, and those for which
// rows were claimed in vain. One command. It reports whether there is no room for more.
func (e *engine) free(ctx context.Context, found []rows.Row, vain []bson.RawValue) (
	left []rows.Row, full bool, err error) {
	of := append([]bson.RawValue{}, vain...)
	for _, row := range found {
		if key, ok := rows.KeyOf(row.Doc, e.cfg.Key); ok {
			of = append(of, key)
		}
	}
	keys, _, err := e.store.Held(ctx, of)
	if err != nil {
		return nil, false, fmt.Errorf("claim: %w", err)
	}
	held := keySet(keys)
	e.mu.Lock()
	defer e.mu.Unlock()
	left = slices.DeleteFunc(found, func(row rows.Row) bool {
		key, ok := rows.KeyOf(row.Doc, e.cfg.Key)
		return ok && held[rows.KeyText(key)]
	})
	if l := e.learnt; l != nil {
		l.add(keys)
		full = l.isFull()
	}
	return left, full, nil
}

// lookOn keeps what was learnt for the next question, even of a slow server; that asks for more.
func (e *engine) lookOn() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.learnt; l != nil {
		now := e.clock.Now().Mono
		l.rows, l.until = min(2*l.rows, learntAtMost), now+max(learntFor, now-l.since)
	}
}

// unlearn says that a row of this process holds its key no more, perhaps. The caller holds mu.
func (e *engine) unlearn(c *claimed) {
	if e.learnt == nil {
		return
	}
	if key, ok := rows.KeyOf(c.row.Doc, e.cfg.Key); ok {
		delete(e.learnt.keys, rows.KeyText(key))
	}
}
