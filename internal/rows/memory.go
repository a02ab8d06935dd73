package rows

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Memory is a store in memory, for tests. It knows neither filters nor orders: all rows belong to
// the queue, and the oldest documents are first, as in the index of a server, however often they were
// claimed. Safe for concurrent use.
type Memory struct {
	mu       sync.Mutex // guards all
	rows     map[string]*Row
	ready    []*Row
	claimed  map[*Row]struct{}
	waiting  map[*Row]struct{} // retrying
	counts   map[State]int64
	wakes    map[*func()]struct{}
	careless bool
	done     map[string]int
	came     int64
	refuses  func(Row) error
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{rows: map[string]*Row{}, claimed: map[*Row]struct{}{}, waiting: map[*Row]struct{}{},
		counts: map[State]int64{}, wakes: map[*func()]struct{}{}, done: map[string]int{}}
}

// Careless makes Finish forget to compare the claim, so that a test can show that it would notice.
func (m *Memory) Careless() { m.careless = true }

// turn changes the state of a row.
func (m *Memory) turn(r *Row, to State) {
	switch r.Mark.State {
	case Ready:
		m.ready = slices.DeleteFunc(m.ready, func(one *Row) bool { return one == r })
	case Claimed:
		delete(m.claimed, r)
	case Retrying:
		delete(m.waiting, r)
	}
	m.counts[r.Mark.State]--
	m.enter(r, to)
}

func (m *Memory) enter(r *Row, to State) {
	r.Mark.State = to
	m.counts[to]++
	switch to {
	case Ready:
		at, _ := slices.BinarySearchFunc(m.ready, r.age, func(one *Row, age int64) int { return cmp.Compare(one.age, age) })
		m.ready = slices.Insert(m.ready, at, r)
	case Claimed:
		m.claimed[r] = struct{}{}
	case Retrying:
		m.waiting[r] = struct{}{}
	}
}

// take claims rows that are ready; it goes over the ready ones once.
func (m *Memory) take(these []*Row, c Claim) {
	for _, r := range these {
		m.counts[Ready]--
		m.enter(r, Claimed)
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
		if r.Mark.State == Ready {
			left = append(left, r)
		}
	}
	m.ready = left
}

// Candidates is documented in [Store].
func (m *Memory) Candidates(_ context.Context, n, skip int, without []bson.RawValue) ([]Row, []Malformed,
	error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []Row
	ready := m.readyBut(without, n+skip)
	for _, r := range ready[min(skip, len(ready)):] {
		found = append(found, *r)
	}
	return found, nil, nil
}

// readyBut is the first n rows that are ready, without some.
func (m *Memory) readyBut(without []bson.RawValue, n int) []*Row {
	if len(without) == 0 {
		return m.ready[:min(n, len(m.ready))]
	}
	out := map[string]bool{}
	for _, id := range without {
		out[Key(id)] = true
	}
	var found []*Row
	for _, r := range m.ready {
		if len(found) == n {
			break
		}
		if !out[Key(r.ID)] {
			found = append(found, r)
		}
	}
	return found
}

// Mark is documented in [Store].
func (m *Memory) Mark(_ context.Context, ids []bson.RawValue, c Claim) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var these []*Row
	for _, id := range ids {
		if r := m.rows[Key(id)]; r != nil && r.Mark.State == Ready {
			these = append(these, r)
		}
	}
	var refused RefusedError
	these = slices.DeleteFunc(these, func(r *Row) bool { return m.refusesOne(r, &refused) })
	m.take(these, c)
	return refused.orNil()
}

// Marked is documented in [Store].
func (m *Memory) Marked(_ context.Context, ids []bson.RawValue, c Claim) ([]Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []Row
	for _, id := range ids {
		if r := m.rows[Key(id)]; r != nil && r.Mark.State == Claimed && r.Mark.Batch == c.Batch {
			found = append(found, *r)
		}
	}
	return found, nil
}

// MarkOne is documented in [Store].
func (m *Memory) MarkOne(_ context.Context, c Claim, without []bson.RawValue) (*Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.readyBut(without, 1)
	if len(first) == 0 {
		return nil, nil
	}
	if m.refusesOne(first[0], &RefusedError{}) {
		return nil, &RefusedError{}
	}
	r := first[0]
	m.take([]*Row{r}, c)
	copied := *r
	return &copied, nil
}

// Finish is documented in [Store].
func (m *Memory) Finish(_ context.Context, endings []Ending) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	var refused RefusedError
	for _, e := range endings {
		r := m.rows[Key(e.ID)]
		if r == nil {
			continue
		}
		if m.refusesOne(r, &refused) {
			continue
		}
		mine := r.Mark.State == Claimed && r.Mark.Session == e.Session && r.Mark.Batch == e.Batch
		if !mine && !m.careless {
			continue
		}
		n++
		if e.To == Done {
			m.done[Key(e.ID)]++
		}
		m.turn(r, e.To)
		r.Mark.NotBefore = e.NotBefore
		if e.Uncounted {
			r.Mark.Attempts--
		} else {
			r.Mark.Error = e.Error
		}
		r.Mark.leave()
		switch {
		case e.To == Ready:
			r.Mark.Attempts--
		case e.Delete:
			m.counts[e.To]--
			delete(m.rows, Key(e.ID))
		}
	}
	return n, refused.orNil()
}

// FinishIn is documented in [Store].
func (m *Memory) FinishIn(ctx context.Context, e Ending) (int, error) {
	return m.Finish(ctx, []Ending{e})
}

// Current is documented in [Store].
func (m *Memory) Current(_ context.Context, ids []bson.RawValue) ([]Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []Row
	for _, id := range ids {
		if r := m.rows[Key(id)]; r != nil {
			found = append(found, *r)
		}
	}
	return found, nil
}

// Tidy is documented in [Store].
func (m *Memory) Tidy(_ context.Context, now time.Time, slot Slot, fence, most int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	var refused RefusedError
	for r := range m.waiting {
		if !r.Mark.NotBefore.After(now) && !m.refusesOne(r, &refused) {
			m.turn(r, Ready)
			r.Mark.NotBefore = time.Time{}
			n++
		}
	}
	for r := range m.claimed {
		if !r.Mark.of(slot) || r.Mark.SlotFence >= fence || m.refusesOne(r, &refused) {
			continue
		}
		n++
		m.rescue(r, most, GivenUp)
	}
	return n, refused.orNil()
}

// Batches is documented in [Store].
func (m *Memory) Batches(_ context.Context, slot Slot, session bson.ObjectID) ([]bson.ObjectID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []bson.ObjectID
	for r := range m.claimed {
		if r.Mark.of(slot) && r.Mark.Session == session && !slices.Contains(found, r.Mark.Batch) {
			found = append(found, r.Mark.Batch)
		}
	}
	return found, nil
}

// GiveBack is documented in [Store].
func (m *Memory) GiveBack(_ context.Context, session bson.ObjectID, batches []bson.ObjectID) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	var refused RefusedError
	for r := range m.claimed {
		if r.Mark.Session == session && (batches == nil || slices.Contains(batches, r.Mark.Batch)) &&
			!m.refusesOne(r, &refused) {
			m.turn(r, Ready)
			r.Mark.Attempts--
			r.Mark.leave()
			n++
		}
	}
	return n, refused.orNil()
}

// rescue takes a row from who has claimed it.
func (m *Memory) rescue(r *Row, most int64, text string) {
	switch {
	case r.Mark.Waiting:
		r.Mark.Attempts--
		m.turn(r, Ready)
	case r.Mark.Attempts < most:
		m.turn(r, Ready)
	default:
		m.turn(r, Dead)
		r.Mark.Error = text
	}
	r.Mark.leave()
	r.Mark.Rescued = true
}

// of reports whether a claim belongs to a slot.
func (m *Mark) of(slot Slot) bool {
	return m.Slot == slot.Name && (m.Locks == slot.Locks || m.Locks == "")
}

// leave takes a claim out of a row. Fence, attempts and batch stay.
func (m *Mark) leave() {
	m.Locks, m.Slot, m.Session, m.SlotFence, m.Waiting = "", "", bson.NilObjectID, 0, false
}

// own returns the row of a claim that still is one, nil otherwise.
func (m *Memory) own(row Row) *Row {
	r := m.rows[Key(row.ID)]
	if r == nil || r.Mark.State != Claimed || r.Mark.Session != row.Mark.Session || r.Mark.Batch != row.Mark.Batch {
		return nil
	}
	return r
}

// Renew is documented in [Store].
func (m *Memory) Renew(_ context.Context, row Row) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.own(row)
	if r == nil {
		return 0, nil
	}
	r.Mark.Beat++
	r.Mark.Waiting = false
	return 1, nil
}

// Leased is documented in [Store].
func (m *Memory) Leased(context.Context) ([]Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []Row
	for r := range m.claimed {
		if r.Mark.Lease > 0 {
			found = append(found, *r)
		}
	}
	return found, nil
}

// Expire is documented in [Store].
func (m *Memory) Expire(_ context.Context, row Row, most int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.own(row)
	if r == nil || r.Mark.Beat != row.Mark.Beat {
		return 0, nil
	}
	m.rescue(r, most, Expired)
	return 1, nil
}

// Slots is documented in [Store].
func (m *Memory) Slots(context.Context) ([]Slot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []Slot
	for r := range m.claimed {
		if slot := (Slot{r.Mark.Locks, r.Mark.Slot}); !slices.Contains(found, slot) {
			found = append(found, slot)
		}
	}
	return found, nil
}

// Odd is documented in [Store]. There are none in memory.
func (m *Memory) Odd(context.Context) ([]Malformed, error) { return nil, nil }

// Count is documented in [Store].
func (m *Memory) Count(context.Context) (Counts, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Counts{Ready: m.counts[Ready], Claimed: m.counts[Claimed], Retrying: m.counts[Retrying],
		Dead: m.counts[Dead], Done: m.counts[Done]}, nil
}

// Insert is documented in [Store].
func (m *Memory) Insert(_ context.Context, docs []any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, doc := range docs {
		raw, err := bson.Marshal(doc)
		if err != nil {
			return err
		}
		m.came++
		row := &Row{ID: bson.Raw(raw).Lookup("_id"), Doc: raw, age: m.came}
		if row.ID.IsZero() || m.rows[Key(row.ID)] != nil {
			return errors.New("a row in memory needs an _id of its own")
		}
		m.rows[Key(row.ID)] = row
		m.enter(row, Ready)
	}
	for wake := range m.wakes {
		(*wake)()
	}
	return nil
}

// Transact is documented in [Store]. There are none in memory.
func (m *Memory) Transact(context.Context, func(context.Context) error) error {
	return ErrNoTransactions
}

// Prepare is documented in [Store].
func (m *Memory) Prepare(context.Context) error { return nil }

// Watch is documented in [Store].
func (m *Memory) Watch(ctx context.Context, wake func()) error {
	m.mu.Lock()
	m.wakes[&wake] = struct{}{}
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.wakes, &wake)
	return context.Cause(ctx)
}

// Strip takes the field out of a row, as a program does that replaces the document.
func (m *Memory) Strip(id bson.RawValue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.rows[Key(id)]; r != nil {
		m.turn(r, Ready)
		r.Mark = Mark{State: Ready}
	}
}

// Dones tells how often a row was marked done.
func (m *Memory) Dones(id bson.RawValue) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done[Key(id)]
}

// All returns a copy of every row.
func (m *Memory) All() []Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Row, 0, len(m.rows))
	for _, r := range m.rows {
		all = append(all, *r)
	}
	return all
}
