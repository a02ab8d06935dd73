package memrows

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
)

// Due makes the store give rows when the date in this field has passed, the earliest first. Call it
// before anything else.
func (m *Memory) Due(field string) *Memory {
	m.due = strings.Split(field, ".")
	return m
}

// SetClock makes the store's clock wrong by so much.
func (m *Memory) SetClock(wrong time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrong = wrong
}

// Now is documented in [rows.Store].
func (m *Memory) Now(context.Context) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now(), nil
}

func (m *Memory) now() time.Time {
	return clock.System().Now().Wall.Add(m.wrong).Truncate(time.Millisecond)
}

// Later is documented in [rows.Store].
func (m *Memory) Later(_ context.Context, after time.Time, n int) ([]rows.Coming, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []rows.Coming
	for _, r := range m.ready {
		if len(found) < n && !r.never && r.due.After(after) {
			found = append(found, rows.Coming{ID: r.ID, Due: r.due})
		}
	}
	return found, nil
}

// Reschedule sets when a row is due, as a program does.
func (m *Memory) Reschedule(id bson.RawValue, due time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rows[rows.Key(id)]
	r.due, r.never = due, false
	slices.SortFunc(m.ready, before)
	m.tell(rows.Event{Kind: rows.Arrived, ID: r.ID, Due: due})
}

// tellReady tells that a row is ready: of a new one when it is due, as a server does.
func (m *Memory) tellReady(r *record) {
	switch {
	case m.due == nil || r.Mark.Fence > 0:
		m.tell(rows.Event{Kind: rows.Arrived, ID: r.ID})
	case !r.never:
		m.tell(rows.Event{Kind: rows.Arrived, ID: r.ID, Due: r.due})
	}
}

// Drop takes a row out that is ready and not due, as a program does that deletes it, or
// makes it dead.
func (m *Memory) Drop(id bson.RawValue, dead bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rows[rows.Key(id)]
	m.turn(r, rows.Dead)
	if !dead {
		m.counts[rows.Dead]--
		delete(m.rows, rows.Key(id))
	}
	m.tell(rows.Event{Kind: rows.Freed, ID: id})
}

// readDue reads when a row is due: never without a date.
func (m *Memory) readDue(r *record) {
	if m.due != nil {
		due, ok := r.Doc.Lookup(m.due...).TimeOK()
		r.due, r.never = due, !ok
	}
}

// isDue reports whether a row is given at a time.
func (m *Memory) isDue(r *record, at time.Time) bool {
	return m.due == nil || !r.never && !r.due.After(at)
}

// before compares two rows by when they are due, those that never are last, and by age.
func before(one, other *record) int {
	if one.never != other.never {
		if one.never {
			return 1
		}
		return -1
	}
	return cmp.Or(one.due.Compare(other.due), cmp.Compare(one.age, other.age))
}
