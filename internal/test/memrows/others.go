package memrows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
)

func (m *Memory) Cancel(_ context.Context, now time.Time, id bson.RawValue) (rows.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.row(id)
	if r == nil || r.Mark.State == rows.Dead || r.Mark.State == rows.Done {
		return "", nil
	}
	if one := m.refused(r); one != nil {
		return "", one
	}
	if r.Mark.State == rows.Claimed {
		r.Mark.Cancelled = true
	} else {
		m.turn(r, rows.Dead)
		r.Mark.Error, r.Mark.DeadAt, r.Mark.NotBefore = rows.Cancelled, now, time.Time{}
	}
	return r.Mark.State, nil
}

func (m *Memory) Purge(_ context.Context, state rows.State, before time.Time) (n int, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = slices.DeleteFunc(m.all, func(r *record) bool {
		at := r.Mark.DoneAt
		if state == rows.Dead {
			at = r.Mark.DeadAt
		}
		old := r.Mark.State == state && n < 1000 &&
			(before.IsZero() || !at.IsZero() && at.Before(before))
		if old {
			n++
		}
		return old
	})
	return n, nil
}

func (m *Memory) Later(_ context.Context, from time.Time, n int) (found []rows.Event, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.ready() {
		if len(found) < n && r.due != never && !r.due.Before(from) {
			found = append(found, rows.Event{Kind: rows.Arrived, ID: r.ID, Due: r.due})
		}
	}
	return found, nil
}

func (m *Memory) Now(context.Context) (time.Time, error) { return now(), nil }

func now() time.Time { return clock.System().Now().Wall.Truncate(time.Millisecond) }

func (m *Memory) Count(_ context.Context, most int64) (d rows.Depth, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := now()
	for _, r := range m.ready() {
		switch {
		case r.list:
			d.Odd++
		case m.isDue(r, now):
			d.Ready++
		default:
			d.Later++
		}
	}
	counts := map[rows.State]int64{}
	for _, r := range m.all {
		counts[r.Mark.State]++
	}
	d.Claimed, d.Retrying, d.Dead = counts[rows.Claimed], counts[rows.Retrying], counts[rows.Dead]
	if most == 0 {
		d.Done = counts[rows.Done]
		return d, nil
	}
	for _, n := range []*int64{&d.Ready, &d.Later, &d.Claimed, &d.Retrying, &d.Dead, &d.Odd} {
		*n = min(*n, most)
	}
	if r := m.first(rows.Ask{Due: now}); r != nil {
		if d.Since = r.due; m.due == nil {
			if id, ok := r.ID.ObjectIDOK(); ok {
				d.Since = id.Timestamp().UTC()
			}
		}
	}
	for _, r := range m.all {
		if at := r.Mark.NotBefore; r.Mark.State == rows.Retrying && (d.Retry.IsZero() || at.Before(d.Retry)) {
			d.Retry = at
		}
	}
	return d, nil
}

func (m *Memory) Insert(_ context.Context, docs []any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, doc := range docs {
		if _, err := m.insert(doc); err != nil {
			return err
		}
	}
	return nil
}

func (m *Memory) insert(doc any) (*record, error) {
	raw, err := bson.Marshal(doc)
	if err != nil {
		return nil, err
	}
	r := &record{Row: rows.Row{ID: bson.Raw(raw).Lookup("_id"), Doc: raw}}
	if r.ID.IsZero() || m.row(r.ID) != nil {
		return nil, errors.New("a row in memory needs an _id of its own")
	}
	if m.due != nil {
		r.due = never
		if due, ok := r.Doc.Lookup(m.due...).TimeOK(); ok {
			r.due = due.UTC()
		}
	}
	if key := rows.Lookup(r.Doc, m.key); key.Type != 0 && m.key != "" {
		r.key, r.list = keyText(key), rows.ListIn(r.Doc, m.key) != ""
	}
	m.all = append(m.all, r)
	m.turn(r, rows.Ready)
	return r, nil
}

func (m *Memory) InsertUnique(_ context.Context, key string, doc any) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.all {
		if r.unique == key {
			return false, nil
		}
	}
	r, err := m.insert(doc)
	if err == nil {
		r.unique = key
	}
	return err == nil, err
}

// Transact returns ErrNoTransactions.
func (m *Memory) Transact(context.Context, func(context.Context) error) error {
	return rows.ErrNoTransactions
}

func (m *Memory) Watch(ctx context.Context, report func(rows.Event)) error {
	m.mu.Lock()
	m.hearers[&report] = struct{}{}
	report(rows.Event{Kind: rows.Opened})
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.hearers, &report)
	return context.Cause(ctx)
}

func (m *Memory) Paused(context.Context, string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.paused, nil
}

// keyText converts a key to a string for use in a map. Equal numbers of different types have the
// same string.
func keyText(v bson.RawValue) string {
	switch v.Type {
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble:
		if n, ok := v.AsInt64OK(); ok && (v.Type != bson.TypeDouble || float64(n) == v.Double()) {
			return fmt.Sprint("number ", n)
		}
	}
	return rows.Key(v)
}
