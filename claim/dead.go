package claim

import (
	"context"
	"runtime/debug"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/rows"
)

// deaths are the rows of which Config.OnDead is to be told, one after the other.
type deaths struct {
	ctx context.Context // of OnDead
	end context.CancelFunc

	mu    sync.Mutex // guards the rest
	next  []Info
	tells chan struct{} // closed when all have been told; nil while none is
}

// mostDeaths is how many wait at most.
const mostDeaths = 10_000

// died tells Config.OnDead of rows, in the background. A queue that is closed tells, too.
func (e *engine) died(dead ...rows.Row) {
	if e.cfg.OnDead == nil {
		return
	}
	d := &e.deaths
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, row := range dead {
		if len(d.next) == mostDeaths {
			e.log.Error().Str("row", rows.Text(row.ID)).Msg("OnDead is not told: too many rows wait for it")
			continue
		}
		d.next = append(d.next, infoOf(row))
	}
	if d.tells == nil && len(d.next) > 0 {
		d.tells = make(chan struct{})
		go e.tellOfDeaths()
	}
}

func (e *engine) tellOfDeaths() {
	d := &e.deaths
	for {
		d.mu.Lock()
		if len(d.next) == 0 {
			close(d.tells)
			d.tells = nil
			d.mu.Unlock()
			return
		}
		row := d.next[0]
		d.next = d.next[1:]
		d.mu.Unlock()
		e.tellOfDeath(row)
	}
}

// tellOfDeath survives what OnDead does: a panic is logged.
func (e *engine) tellOfDeath(row Info) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if value := recover(); value != nil {
				e.log.Error().Err(&PanicError{Value: value}).Str("row", rows.Text(row.ID)).
					Bytes("stack", debug.Stack()).Msg("OnDead panicked")
			}
		}()
		e.cfg.OnDead(e.deaths.ctx, row)
	}()
	<-done
}

// told waits until OnDead knows all.
func (d *deaths) told() {
	d.mu.Lock()
	tells := d.tells
	d.mu.Unlock()
	if tells != nil {
		<-tells
	}
}

// deadBy is a row as an ending has left it, which is known to be carried out.
func deadBy(c *claimed, end rows.Ending) rows.Row {
	row := c.row
	row.Mark.State, row.Mark.Error = rows.Dead, end.Error
	row.Mark.Failures, row.Mark.DeadAt = end.Failures, end.At
	return row
}

// wasDead reports whether an ending made its row dead: what is left of it says so, and not that
// another hand did.
func wasDead(end rows.Ending, left []rows.Row) bool {
	row := byKey(left)[rows.Key(end.ID)]
	return end.To == rows.Dead &&
		(row == nil || row.Mark.State == rows.Dead && row.Mark.Error == end.Error)
}

// tidyUp is Tidy of the rows of a slot that this process holds. For OnDead it reads before which
// rows will be dead by it, and afterwards which are: while the slot is held nobody else rescues
// them.
func (e *engine) tidyUp(ctx context.Context, slot rows.Slot, guard *distlock.TryGuard, most int64) (
	int, error) {
	now, err := e.serverNow(ctx)
	if err != nil {
		return 0, err
	}
	tidy := func() (int, error) {
		ctx, done := e.command(ctx)
		defer done()
		return e.store.Tidy(ctx, now, slot, guard.Fence(), most)
	}
	if e.cfg.OnDead == nil {
		return tidy()
	}
	reading, done := context.WithTimeout(ctx, 3*e.limit)
	defer done()
	dying, err := e.store.Dying(reading, slot, guard.Fence(), most)
	if err != nil {
		return 0, err
	}
	n, err := tidy()
	if len(dying) == 0 {
		return n, err
	}
	found, readErr := e.store.Documents(reading, dying)
	if readErr != nil {
		e.log.Warn().Err(readErr).Msg("OnDead is not told of rows that were rescued")
	}
	for _, row := range found {
		if row.Mark.State == rows.Dead && row.Mark.Error == rows.GivenUp && guard.Err() == nil {
			e.died(row)
		}
	}
	return n, err
}

// diedByLease tells OnDead of a row whose lease ended at its last attempt.
func (e *engine) diedByLease(ctx context.Context, row rows.Row, most int64) {
	if e.cfg.OnDead == nil || row.Mark.Waiting || row.Mark.Attempts < most {
		return
	}
	found, err := e.store.Documents(ctx, []bson.RawValue{row.ID})
	if err != nil {
		e.log.Warn().Err(err).Msg("OnDead is told of a row without its document")
	}
	for _, now := range found {
		if now.Mark.State == rows.Dead {
			row = now
		}
	}
	e.died(row)
}
