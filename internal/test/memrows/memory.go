// Package memrows keeps the rows of a queue in memory, for tests.
package memrows

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
)

// Memory is a store in memory. It knows neither filters nor orders: all rows belong to
// the queue, and the oldest documents are first, as in the index of a server, however often they
// were claimed, after [Memory.Due] those that are due first. Safe for concurrent use.
type Memory struct {
	mu       sync.Mutex // guards all
	rows     map[string]*record
	ready    []*record
	claimed  map[*record]struct{}
	waiting  map[*record]struct{} // retrying
	counts   map[rows.State]int64
	hearers  map[*func(rows.Event)]struct{}
	careless bool
	done     map[string]int
	came     int64
	refuses  func(rows.Row) error
	chains   ring
	due      []string // path of the field that says when a row is due; nil: all are
	wrong    time.Duration
}

var _ rows.Store = (*Memory)(nil)

// A record is a row, and what an index would know of it.
type record struct {
	rows.Row
	age   int64     // how many rows came before it
	due   time.Time // with Due
	never bool      // it has no date

	key  string // of its chain; empty: none
	keys bool   // there is a list where the key should be
}

// copies are what others may read of records.
func copies(these []*record) (found []rows.Row) {
	for _, r := range these {
		found = append(found, r.Row)
	}
	return found
}

// New returns an empty store.
func New() *Memory {
	return &Memory{rows: map[string]*record{},
		claimed: map[*record]struct{}{}, waiting: map[*record]struct{}{},
		counts: map[rows.State]int64{}, hearers: map[*func(rows.Event)]struct{}{}, done: map[string]int{}}
}

// Careless makes Finish forget to compare the claim, so that a test can show that it would notice.
func (m *Memory) Careless() { m.careless = true }

// turn changes the state of a row.
func (m *Memory) turn(r *record, to rows.State) {
	switch r.Mark.State {
	case rows.Ready:
		m.ready = slices.DeleteFunc(m.ready, func(one *record) bool { return one == r })
	case rows.Claimed:
		delete(m.claimed, r)
	case rows.Retrying:
		delete(m.waiting, r)
	}
	m.counts[r.Mark.State]--
	if to == rows.Dead || to == rows.Done {
		r.Mark.Cancelled = false
	}
	m.enter(r, to)
	if to.Frees(m.chains.lets) && m.chains.letGo(r) {
		m.tell(rows.Event{Kind: rows.Freed, ID: r.ID})
	}
}

func (m *Memory) enter(r *record, to rows.State) {
	r.Mark.State = to
	m.counts[to]++
	switch to {
	case rows.Ready:
		at, _ := slices.BinarySearchFunc(m.ready, r, before)
		m.ready = slices.Insert(m.ready, at, r)
		m.tellReady(r)
	case rows.Claimed:
		m.claimed[r] = struct{}{}
		m.tell(rows.Event{Kind: rows.Taken, ID: r.ID})
	case rows.Retrying:
		m.waiting[r] = struct{}{}
	}
}

func (m *Memory) tell(event rows.Event) {
	for hear := range m.hearers {
		(*hear)(event)
	}
}

// take claims rows that are ready; it goes over the ready ones once.
func (m *Memory) take(these []*record, c rows.Claim) {
	for _, r := range these {
		m.counts[rows.Ready]--
		m.enter(r, rows.Claimed)
		m.chains.take(r)
		r.Mark.Locks, r.Mark.Slot, r.Mark.SlotFence = c.Locks, c.Slot, c.SlotFence
		r.Mark.Session, r.Mark.Batch = c.Session, c.Batch
		r.Mark.Lease, r.Mark.Beat, r.Mark.Waiting = c.Lease, 0, c.Waiting
		r.Mark.Fence++
		r.Mark.Attempts++
	}
	left := m.ready[:0]
	for i, r := range m.ready {
		if len(left)+len(these) == i { // all of them were seen
			left = append(left, m.ready[i:]...)
			break
		}
		if r.Mark.State == rows.Ready {
			left = append(left, r)
		}
	}
	m.ready = left
}

// Candidates is documented in [rows.Store].
func (m *Memory) Candidates(_ context.Context, n, skip int, ask *rows.Ask) (
	[]rows.Row, []rows.Malformed, error,
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ready := m.wanted(ask, n+skip)
	return copies(ready[min(skip, len(ready)):]), nil, nil
}

// wanted is the first n rows that are ready and asked for.
func (m *Memory) wanted(ask *rows.Ask, n int) []*record {
	if ask == nil {
		ask = &rows.Ask{}
	}
	if len(ask.Without) == 0 && m.due == nil && m.chains.key == "" {
		return m.ready[:min(n, len(m.ready))]
	}
	out := map[string]bool{}
	for _, id := range ask.Without {
		out[rows.Key(id)] = true
	}
	var found []*record
	wants := m.chains.wants(ask)
	for _, r := range m.ready {
		if len(found) == n || !m.isDue(r, ask.Due) {
			break
		}
		if !out[rows.Key(r.ID)] && wants(r) {
			found = append(found, r)
		}
	}
	return found
}

// Mark is documented in [rows.Store].
func (m *Memory) Mark(_ context.Context, ids []bson.RawValue, c rows.Claim) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var refused rows.RefusedError
	these := slices.DeleteFunc(m.those(ids), func(r *record) bool {
		return r.Mark.State != rows.Ready || m.refusesOne(r, &refused) || m.chains.refuses(r)
	})
	m.take(these, c)
	return orNil(&refused)
}

// those are the rows with these _ids that are there.
func (m *Memory) those(ids []bson.RawValue) (found []*record) {
	for _, id := range ids {
		if r := m.rows[rows.Key(id)]; r != nil {
			found = append(found, r)
		}
	}
	return found
}

// Marked is documented in [rows.Store].
func (m *Memory) Marked(_ context.Context, ids []bson.RawValue, c rows.Claim) ([]rows.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copies(slices.DeleteFunc(m.those(ids), func(r *record) bool {
		return r.Mark.State != rows.Claimed || r.Mark.Batch != c.Batch
	})), nil
}

// MarkOne is documented in [rows.Store].
func (m *Memory) MarkOne(_ context.Context, c rows.Claim, ask *rows.Ask) (*rows.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.wanted(ask, 1)
	if len(first) == 0 {
		return nil, nil
	}
	r := first[0]
	if m.refusesOne(r, &rows.RefusedError{}) {
		return nil, &rows.RefusedError{}
	}
	if m.chains.refuses(r) {
		key, _ := rows.KeyOf(r.Doc, m.chains.key)
		return nil, &rows.HeldError{Key: key}
	}
	m.take([]*record{r}, c)
	copied := r.Row
	return &copied, nil
}

// Finish is documented in [rows.Store].
func (m *Memory) Finish(_ context.Context, endings []rows.Ending) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	var refused rows.RefusedError
	for _, e := range endings {
		r := m.rows[rows.Key(e.ID)]
		if r == nil || m.refusesOne(r, &refused) {
			continue
		}
		mine := r.Mark.State == rows.Claimed && r.Mark.Session == e.Session && r.Mark.Batch == e.Batch
		if !mine && !m.careless || e.To == rows.Retrying && r.Mark.Cancelled {
			continue
		}
		n++
		if e.To == rows.Done {
			m.done[rows.Key(e.ID)]++
		}
		m.turn(r, e.To)
		r.Mark.NotBefore = e.NotBefore
		if e.Uncounted {
			r.Mark.Attempts--
		} else {
			r.Mark.Error = e.Error
			failed(&r.Mark, e)
		}
		leave(&r.Mark)
		switch {
		case e.To == rows.Ready:
			r.Mark.Attempts--
		case e.Delete:
			m.counts[e.To]--
			delete(m.rows, rows.Key(e.ID))
		}
	}
	return n, orNil(&refused)
}

// FinishIn is documented in [rows.Store].
func (m *Memory) FinishIn(ctx context.Context, e rows.Ending) (int, error) {
	return m.Finish(ctx, []rows.Ending{e})
}

// Current is documented in [rows.Store].
func (m *Memory) Current(_ context.Context, ids []bson.RawValue) ([]rows.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copies(m.those(ids)), nil
}

// Batches is documented in [rows.Store].
func (m *Memory) Batches(_ context.Context, slot rows.Slot, session bson.ObjectID) (
	[]bson.ObjectID, error,
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []bson.ObjectID
	for _, r := range byAge(m.claimed) {
		if of(&r.Mark, slot) && r.Mark.Session == session && !slices.Contains(found, r.Mark.Batch) {
			found = append(found, r.Mark.Batch)
		}
	}
	return found, nil
}

// byAge puts rows in order, so that a play of a test is the same again.
func byAge(these map[*record]struct{}) []*record {
	return slices.SortedFunc(maps.Keys(these), byCame)
}

func byCame(a, b *record) int { return cmp.Compare(a.age, b.age) }

// own returns the row of a claim that still is one, nil otherwise.
func (m *Memory) own(row rows.Row) *record {
	r := m.rows[rows.Key(row.ID)]
	if r == nil || r.Mark.State != rows.Claimed || r.Mark.Session != row.Mark.Session ||
		r.Mark.Batch != row.Mark.Batch {
		return nil
	}
	return r
}

// Renew is documented in [rows.Store].
func (m *Memory) Renew(_ context.Context, row rows.Row) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.own(row)
	if r == nil {
		return 0, nil
	}
	r.Mark.Beat++
	r.Mark.Waiting = r.Mark.Waiting && !row.Mark.Rescued
	return 1, nil
}

// Leased is documented in [rows.Store].
func (m *Memory) Leased(context.Context) ([]rows.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copies(slices.DeleteFunc(byAge(m.claimed), func(r *record) bool {
		return r.Mark.Lease == 0
	})), nil
}

// Slots is documented in [rows.Store].
func (m *Memory) Slots(context.Context) ([]rows.Slot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []rows.Slot
	for _, r := range byAge(m.claimed) {
		if slot := (rows.Slot{Locks: r.Mark.Locks, Name: r.Mark.Slot}); !slices.Contains(found, slot) {
			found = append(found, slot)
		}
	}
	return found, nil
}

// Count is documented in [rows.Store].
func (m *Memory) Count(context.Context) (rows.Counts, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	later := int64(0)
	for now, i := m.now(), len(m.ready)-1; i >= 0 && !m.isDue(m.ready[i], now); i-- {
		later++
	}
	return rows.Counts{Ready: m.counts[rows.Ready] - later, Later: later,
		Claimed: m.counts[rows.Claimed], Retrying: m.counts[rows.Retrying],
		Dead: m.counts[rows.Dead], Done: m.counts[rows.Done]}, nil
}

// Insert is documented in [rows.Store].
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
	m.came++
	row := &record{Row: rows.Row{ID: bson.Raw(raw).Lookup("_id"), Doc: raw}, age: m.came}
	if row.ID.IsZero() || m.rows[rows.Key(row.ID)] != nil {
		return nil, errors.New("a row in memory needs an _id of its own")
	}
	m.readDue(row)
	m.chains.readKey(row)
	m.rows[rows.Key(row.ID)] = row
	m.enter(row, rows.Ready)
	return row, nil
}

// Transact is documented in [rows.Store]. There are none in memory.
func (m *Memory) Transact(context.Context, func(context.Context) error) error {
	return rows.ErrNoTransactions
}

// Prepare is documented in [rows.Store].
func (m *Memory) Prepare(context.Context) error { return nil }

// Watch is documented in [rows.Store].
func (m *Memory) Watch(ctx context.Context, tell func(rows.Event)) error {
	m.mu.Lock()
	m.hearers[&tell] = struct{}{}
	tell(rows.Event{Kind: rows.Opened})
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.hearers, &tell)
	return context.Cause(ctx)
}

// InsertUnique is documented in [rows.Store].
func (m *Memory) InsertUnique(ctx context.Context, key string, doc any) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rows {
		if r.Mark.Unique == key {
			return false, nil
		}
	}
	row, err := m.insert(doc)
	if err == nil {
		row.Mark.Unique = key
	}
	return err == nil, err
}
