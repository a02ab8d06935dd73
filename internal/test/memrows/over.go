package memrows

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
)

// Cancel is documented in [rows.Store].
func (m *Memory) Cancel(_ context.Context, now time.Time, id bson.RawValue) (rows.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rows[rows.Key(id)]
	if r == nil || r.Mark.State == rows.Dead || r.Mark.State == rows.Done {
		return "", nil
	}
	var refused rows.RefusedError
	if m.refusesOne(r, &refused) {
		return "", orNil(&refused)
	}
	if r.Mark.State == rows.Claimed {
		r.Mark.Cancelled = true
	} else {
		m.turn(r, rows.Dead)
		r.Mark.Error, r.Mark.DeadAt, r.Mark.NotBefore = rows.Cancelled, now, time.Time{}
	}
	return r.Mark.State, nil
}

// Dying is documented in [rows.Store].
func (m *Memory) Dying(_ context.Context, slot rows.Slot, fence, most int64) (
	ids []bson.RawValue, err error,
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r := range m.claimed {
		if of(&r.Mark, slot) && r.Mark.SlotFence < fence && !r.Mark.Waiting && r.Mark.Attempts >= most {
			ids = append(ids, r.ID)
		}
	}
	return ids, nil
}

// Documents is documented in [rows.Store].
func (m *Memory) Documents(ctx context.Context, ids []bson.RawValue) ([]rows.Row, error) {
	return m.Current(ctx, ids)
}

// Purge is documented in [rows.Store].
func (m *Memory) Purge(_ context.Context, state rows.State, before time.Time) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for key, r := range m.rows {
		at := r.Mark.DoneAt
		if state == rows.Dead {
			at = r.Mark.DeadAt
		}
		if r.Mark.State != state || n == 1000 || !before.IsZero() && (at.IsZero() || !at.Before(before)) {
			continue
		}
		n++
		m.counts[state]--
		delete(m.rows, key)
	}
	return n, nil
}

// Tidy is documented in [rows.Store].
func (m *Memory) Tidy(_ context.Context, now time.Time, slot rows.Slot, fence, most int64) (
	int, error,
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	var refused rows.RefusedError
	for _, r := range byAge(m.waiting) {
		if !r.Mark.NotBefore.After(now) && !m.refusesOne(r, &refused) {
			m.turn(r, rows.Ready)
			r.Mark.NotBefore = time.Time{}
			n++
		}
	}
	for _, r := range byAge(m.claimed) {
		if !of(&r.Mark, slot) || r.Mark.SlotFence >= fence || m.refusesOne(r, &refused) {
			continue
		}
		n++
		room := r.Mark.Attempts >= most || len(r.Mark.Failures) < rows.MostFailures
		if begun := !r.Mark.Waiting; begun && room {
			r.Mark.Failures = append(slices.Clone(r.Mark.Failures),
				rows.Failure{At: now, Error: rows.GoneProcess})
		}
		m.rescue(r, most, rows.GivenUp, now)
	}
	return n, orNil(&refused)
}

// GiveBack is documented in [rows.Store].
func (m *Memory) GiveBack(_ context.Context, session bson.ObjectID, batches []bson.ObjectID) (
	int, error,
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	var refused rows.RefusedError
	for _, r := range byAge(m.claimed) {
		if r.Mark.Session == session && (batches == nil || slices.Contains(batches, r.Mark.Batch)) &&
			!m.refusesOne(r, &refused) {
			m.turn(r, rows.Ready)
			r.Mark.Attempts--
			leave(&r.Mark)
			n++
		}
	}
	return n, orNil(&refused)
}

// rescue takes a row from who has claimed it.
func (m *Memory) rescue(r *record, most int64, text string, now time.Time) {
	switch {
	case r.Mark.Waiting:
		r.Mark.Attempts--
		m.turn(r, rows.Ready)
	case r.Mark.Attempts < most:
		m.turn(r, rows.Ready)
	default:
		m.turn(r, rows.Dead)
		r.Mark.Error, r.Mark.DeadAt = text, now
	}
	leave(&r.Mark)
	r.Mark.Rescued = true
}

// failed keeps what an ending says of when and why.
func failed(m *rows.Mark, e rows.Ending) {
	switch e.To {
	case rows.Done:
		m.DoneAt = e.At
		return
	case rows.Dead:
		m.DeadAt = e.At
	}
	if e.Failures != nil {
		m.Failures = e.Failures
	}
}

// of reports whether a claim belongs to a slot.
func of(m *rows.Mark, slot rows.Slot) bool {
	return m.Slot == slot.Name && (m.Locks == slot.Locks || m.Locks == "")
}

// leave takes a claim out of a row. Fence, attempts and batch stay.
func leave(m *rows.Mark) {
	m.Locks, m.Slot, m.Session, m.SlotFence, m.Waiting = "", "", bson.NilObjectID, 0, false
}

// Expire is documented in [rows.Store].
func (m *Memory) Expire(_ context.Context, now time.Time, row rows.Row, most int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.own(row)
	if r == nil || r.Mark.Beat != row.Mark.Beat {
		return 0, nil
	}
	var refused rows.RefusedError
	if m.refusesOne(r, &refused) {
		return 0, orNil(&refused)
	}
	if !r.Mark.Waiting {
		r.Mark.Failures = row.Expired(now)
	}
	m.rescue(r, most, rows.Expired, now)
	return 1, nil
}
