package claim

import (
	"sync"
	"time"

	"mongodlm/internal/clock"
)

// A buffer holds the rows that Run has claimed and that no worker has begun, first come, first
// served, and says how many more are wanted.
type buffer struct {
	e    *engine
	more *sync.Cond // rows came, or none will come

	mu     sync.Mutex // guards the rest
	rows   []*claimed
	coming int // rows that are being claimed
	busy   int // workers that have a row
	ending int // rows that are handled and whose end is on its way
	closed bool
	alone  bool          // the next row may not wait here
	mean   time.Duration // of a handler's run, lately; zero before the first has ended
}

func newBuffer(e *engine) *buffer {
	b := &buffer{e: e}
	b.more = sync.NewCond(&b.mu)
	return b
}

// ahead is how many rows the workers finish in about a Poll, or in a quarter of the lease when that
// is shorter: so many may wait for them. None as long as it is not known how long a row takes.
func (b *buffer) ahead() int {
	if b.mean == 0 || b.alone {
		return 0
	}
	cfg := b.e.cfg
	span := cfg.Poll
	if cfg.Lease > 0 {
		span = min(span, cfg.Lease/4)
	}
	return int(min(float64(cfg.Workers)*float64(span)/float64(b.mean), mostInFlight))
}

// reserve takes room for the rows that are to be claimed next, and returns for how many, 0 while
// none are wanted: a whole batch, or fewer when the workers have little left. All of them begin at
// once if there are as many idle workers.
func (b *buffer) reserve() (n int, begin bool) {
	e := b.e
	b.mu.Lock()
	defer b.mu.Unlock()
	idle, waiting, ahead := e.cfg.Workers-b.busy, len(b.rows)+b.coming, b.ahead()
	want := min(e.cfg.Batch, idle+ahead-waiting)
	if want <= 0 {
		return 0, false
	}
	if n = e.reserve(want); n < e.cfg.Batch {
		const few = 8 // a buffer that is down to so many parts of itself is nearly empty
		low := waiting <= min(ahead, e.cfg.InFlight-e.cfg.Workers)/few
		if !low || 2*n < min(want, n+b.ending) { // there will soon be room for more
			e.unreserve(n)
			return 0, false
		}
	}
	b.coming += n
	return n, waiting+n <= idle
}

// put adds the rows that have come of those that were reserved.
func (b *buffer) put(got []*claimed, reserved int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.coming -= reserved
	b.rows = append(b.rows, got...)
	if len(got) > 0 {
		b.alone = false
		b.more.Broadcast()
	}
	if len(got) < reserved { // a feeder that found no room waits for what is left
		signal(b.e.room)
	}
}

// next waits for a row for a worker, which is busy then. Nil when none will come.
func (b *buffer) next() *claimed {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.rows) == 0 {
		if b.closed {
			return nil
		}
		b.more.Wait()
	}
	c := b.rows[0]
	b.rows = b.rows[1:]
	b.busy++
	signal(b.e.room)
	return c
}

// idle says that a worker has no row any more, and how long a handler ran; zero when none did.
func (b *buffer) idle(took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy--
	if took > 0 {
		// A single one that took for ever is forgotten soon.
		took = min(took, 2*b.e.cfg.Poll*time.Duration(b.e.cfg.Workers))
		const weight = 8
		if b.mean == 0 {
			b.mean = took
		}
		b.mean = max(b.mean+(took-b.mean)/weight, 1)
	}
	signal(b.e.room)
}

// ends counts the rows whose end is on its way.
func (b *buffer) ends(n int) {
	b.mu.Lock()
	b.ending += n
	b.mu.Unlock()
	signal(b.e.room)
}

// keepAlone says that the next row has to begin at once.
func (b *buffer) keepAlone() {
	b.mu.Lock()
	b.alone = true
	b.mu.Unlock()
}

// close lets no worker wait any more, and takes out the rows that none has begun.
func (b *buffer) close() (left []*claimed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.more.Broadcast()
	left, b.rows = b.rows, nil
	return left
}

// stale takes the rows out that have waited here for nearly half of their lease.
func (b *buffer) stale() (old []*claimed) {
	e := b.e
	b.mu.Lock()
	defer b.mu.Unlock()
	now, left := e.clock.Now(), b.rows[:0:0]
	for _, c := range b.rows {
		if clock.HolderElapsed(c.renewed, now) >= e.cfg.Lease/2-e.cfg.Lease/airings {
			old = append(old, c)
		} else {
			left = append(left, c)
		}
	}
	b.rows = left
	return old
}

// airings is how often in a lease the buffer is looked through.
const airings = 16
