// Package memrows keeps the rows of a queue in memory, for tests.
package memrows

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
)

// Memory is a store in memory. All its rows belong to one queue. Memory orders rows by due time if
// they have one, then by age. Its methods are safe for concurrent use. [rows.Store] documents the
// methods that have no comment here.
type Memory struct {
	mu      sync.Mutex // guards the rest
	all     []*record  // the oldest first
	hearers map[*func(rows.Event)]struct{}
	done    map[string]int
	refuses func(rows.Row) error
	due     []string // path of the field with the due time; nil if all rows are due
	key     string   // field of the keys of chains
	paused  bool
}

var _ rows.Store = (*Memory)(nil)

// A record is a row and its sort and chain keys.
type record struct {
	rows.Row
	due  time.Time // the date never if the row has none
	key  string    // key of its chain; empty if the row is in no chain
	list bool      // its key is a list

	locks  string // the database of the slot; empty if unknown
	unique string // the key of InsertUnique
}

var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// New returns an empty store. It uses only the options Due and Key.
func New(o rows.Options) *Memory {
	m := &Memory{hearers: map[*func(rows.Event)]struct{}{}, done: map[string]int{}, key: o.Key}
	if o.Due != "" {
		m.due = strings.Split(o.Due, ".")
	}
	return m
}

// Refuse sets a check for Claim, End, Wake and Cancel. These methods do not change a row for which
// the check returns an error. Without a check, no change is refused.
func (m *Memory) Refuse(refuses func(rows.Row) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuses = refuses
}

// Pause sets or clears the pause switch.
func (m *Memory) Pause(paused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused = paused
}

// All returns a copy of every row, the oldest first.
func (m *Memory) All() []rows.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.those(func(*record) bool { return true })
}

// Dones returns the number of times that End has marked a row done.
func (m *Memory) Dones(id bson.RawValue) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done[rows.Key(id)]
}

// Edit changes the mark of a row, like a manual edit of the document.
func (m *Memory) Edit(id bson.RawValue, edit func(*rows.Mark)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.row(id)
	edit(&r.Mark)
	m.turn(r, r.Mark.State)
}

// row returns the row with the given _id, or nil.
func (m *Memory) row(id bson.RawValue) *record {
	for _, r := range m.all {
		if r.ID.Equal(id) {
			return r
		}
	}
	return nil
}

// ready returns the ready rows by due time, then by age. Rows without a date are last.
func (m *Memory) ready() []*record {
	found := slices.DeleteFunc(slices.Clone(m.all), func(r *record) bool {
		return r.Mark.State != rows.Ready
	})
	slices.SortStableFunc(found, func(a, b *record) int { return a.due.Compare(b.due) })
	return found
}

// turn changes the state of a row and reports the event.
func (m *Memory) turn(r *record, to rows.State) {
	r.Mark.State = to
	event := rows.Event{ID: r.ID}
	switch to {
	case rows.Ready:
		event.Kind = rows.Arrived
		if r.Mark.Fence == 0 {
			event.Due = r.due
		}
		if event.Due.Equal(never) {
			return
		}
	case rows.Claimed:
		event.Kind = rows.Taken
	case rows.Dead, rows.Done:
		r.Mark.Cancelled = false
		if r.Mark.Holds == "" {
			return
		}
		r.Mark.Holds = ""
		event.Kind = rows.Freed
	default:
		return
	}
	m.report(event)
}

func (m *Memory) report(event rows.Event) {
	for hear := range m.hearers {
		(*hear)(event)
	}
}

func (m *Memory) refused(r *record) error {
	if m.refuses == nil || m.refuses(r.Row) == nil {
		return nil
	}
	return rows.ErrRefused
}

func (m *Memory) first(ask rows.Ask) *record {
	set := func(ids []bson.RawValue) map[string]bool {
		all := map[string]bool{}
		for _, id := range ids {
			all[keyText(id)] = true
		}
		return all
	}
	without, held := set(ask.Without), set(ask.Held)
	for _, r := range m.ready() {
		if !m.isDue(r, ask.Due) {
			return nil
		}
		if !r.list && !without[keyText(r.ID)] && (!held[r.key] || r.Mark.Holds != "") {
			return r
		}
	}
	return nil
}

func (m *Memory) isDue(r *record, at time.Time) bool {
	return m.due == nil || !r.due.After(at)
}

func (m *Memory) holder(key string) *record {
	if key == "" {
		return nil
	}
	for _, r := range m.all {
		if r.key == key && r.Mark.Holds != "" {
			return r
		}
	}
	return nil
}

func (m *Memory) Claim(_ context.Context, c rows.Claim, ask rows.Ask) (*rows.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.first(ask)
	if r == nil {
		return nil, nil
	}
	if err := m.refused(r); err != nil {
		return nil, err
	}
	if holder := m.holder(r.key); holder != nil && holder != r {
		return nil, &rows.HeldError{Key: rows.Lookup(r.Doc, m.key)}
	}
	r.Mark.Holds = m.key
	r.locks, r.Mark.Slot, r.Mark.SlotFence = c.Locks, c.Slot, c.SlotFence
	r.Mark.Session, r.Mark.Batch = c.Session, c.Batch
	r.Mark.NotBefore, r.Mark.Cancelled = time.Time{}, false
	r.Mark.Fence++
	r.Mark.Attempts = min(r.Mark.Attempts+1, r.Mark.Fence)
	m.turn(r, rows.Claimed)
	copied := r.Row
	return &copied, nil
}

func (m *Memory) First(_ context.Context, ask rows.Ask) (bson.RawValue, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.first(ask); r != nil {
		return r.ID, nil
	}
	return bson.RawValue{}, nil
}

func (m *Memory) Held(context.Context) (keys []bson.RawValue, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.all {
		key := rows.Lookup(r.Doc, m.key) // null for a missing key, as in MongoDB's index
		if key.Type != 0 && key.Type != bson.TypeNull && r.Mark.Holds != "" {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func (m *Memory) Settle(context.Context) (n int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.all {
		if r.Mark.Holds != "" && (r.Mark.State == rows.Dead || r.Mark.State == rows.Done) {
			r.Mark.Holds = ""
			n++
		}
	}
	return n, nil
}

func (m *Memory) End(_ context.Context, endings ...rows.Ending) (n int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range endings {
		r := m.row(e.ID)
		if r == nil || r.Mark.Cancelled && (e.To == rows.Retrying || e.To == rows.Ready) {
			continue
		}
		if r.Mark.State != rows.Claimed || r.Mark.Session != e.Session || r.Mark.Batch != e.Batch {
			continue
		}
		if one := m.refused(r); one != nil {
			err = one
			continue
		}
		n++
		m.end(r, e)
	}
	return n, err
}

func (m *Memory) end(r *record, e rows.Ending) {
	k := &r.Mark
	r.locks, k.Slot, k.Session, k.SlotFence = "", "", bson.NilObjectID, 0
	k.Attempts = e.Attempts
	switch e.To {
	case rows.Done:
		m.done[rows.Key(e.ID)]++
		k.DoneAt, k.Error = e.At, ""
	case rows.Dead:
		k.DeadAt = e.At
	case rows.Retrying:
		k.NotBefore = e.NotBefore
	}
	if e.Error != "" {
		k.Error, k.Failures = e.Error, e.Failures
	}
	m.turn(r, e.To)
}

func (m *Memory) those(match func(*record) bool) (found []rows.Row) {
	for _, r := range m.all {
		if match(r) {
			found = append(found, r.Row)
		}
	}
	return found
}

func (m *Memory) Claimed(_ context.Context, slot rows.Slot) ([]rows.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.those(func(r *record) bool {
		return r.Mark.State == rows.Claimed && r.Mark.Slot == slot.Name &&
			(r.locks == slot.Locks || r.locks == "")
	}), nil
}

func (m *Memory) Read(_ context.Context, id bson.RawValue) (*rows.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.row(id)
	if r == nil {
		return nil, nil
	}
	copied := r.Row
	return &copied, nil
}

func (m *Memory) Wake(_ context.Context, now time.Time) (n int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.all {
		if r.Mark.State != rows.Retrying || r.Mark.NotBefore.After(now) || r.Mark.NotBefore.IsZero() {
			continue
		}
		if one := m.refused(r); one != nil {
			err = one
			continue
		}
		r.Mark.NotBefore = time.Time{}
		m.turn(r, rows.Ready)
		n++
	}
	return n, err
}

func (m *Memory) Slots(context.Context) (found []rows.Slot, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.all {
		slot := rows.Slot{Locks: r.locks, Name: r.Mark.Slot}
		if r.Mark.State == rows.Claimed && slot.Name != "" && !slices.Contains(found, slot) {
			found = append(found, slot)
		}
	}
	return found, nil
}

// Odd returns only the ready rows with a list as their key. It finds no other problem.
func (m *Memory) Odd(context.Context, int) (bad []rows.Malformed, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, row := range m.those(func(r *record) bool { return r.list && r.Mark.State == rows.Ready }) {
		bad = append(bad, rows.Malformed{ID: row.ID, Field: m.key, Problem: rows.ManyKeys})
	}
	return bad, nil
}
