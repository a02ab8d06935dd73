package memrows

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
)

// Strip takes the field out of a row, as a program does that replaces the document.
func (m *Memory) Strip(id bson.RawValue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.rows[rows.Key(id)]; r != nil {
		m.turn(r, rows.Ready)
		m.chains.letGo(r)
		r.Mark = rows.Mark{State: rows.Ready}
	}
}

// Dones tells how often a row was marked done.
func (m *Memory) Dones(id bson.RawValue) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done[rows.Key(id)]
}

// EachClaimed tells of every row that is claimed, in no order.
func (m *Memory) EachClaimed(tell func(*rows.Row)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r := range m.claimed {
		tell(&r.Row)
	}
}

// All returns a copy of every row, by age.
func (m *Memory) All() []rows.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copies(slices.SortedFunc(maps.Values(m.rows), byCame))
}

// Odd is documented in [rows.Store]. Other states are not in memory.
func (m *Memory) Odd(context.Context) (bad []rows.Malformed, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.ready {
		if r.keys && len(bad) < 10 {
			bad = append(bad, rows.Malformed{ID: r.ID, Field: rows.ListIn(r.Doc, m.chains.key),
				Problem: rows.ManyKeys})
		}
	}
	return bad, nil
}

// Depth is documented in [rows.Store].
func (m *Memory) Depth(ctx context.Context, now time.Time, most int64) (rows.Depth, error) {
	counts, err := m.Count(ctx)
	if err != nil {
		return rows.Depth{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	due := int64(len(m.wanted(&rows.Ask{Due: now}, len(m.ready))))
	d := rows.Depth{Counts: rows.Counts{Ready: min(due, most),
		Later: min(counts.Ready+counts.Later-due, most), Claimed: min(counts.Claimed, most),
		Retrying: min(counts.Retrying, most), Dead: min(counts.Dead, most)}}
	if first := m.wanted(&rows.Ask{Due: now}, 1); len(first) > 0 {
		d.Since = first[0].due.UTC()
		if id, ok := first[0].ID.ObjectIDOK(); ok && m.due == nil {
			d.Since = id.Timestamp().UTC()
		}
	}
	for row := range m.waiting {
		if at := row.Mark.NotBefore; d.Retry.IsZero() || at.Before(d.Retry) {
			d.Retry = at
		}
	}
	return d, nil
}
