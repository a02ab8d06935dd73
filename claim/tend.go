package claim

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/metrics"
	"mongodlm/internal/rows"
)

// tendEvery is the time between two rounds of tend.
const tendEvery = 5 * time.Second

// seldom is the number of rounds after which even an idle process reads its claims. The server may
// carry out a claim so late that nothing else finds it.
const seldom = 60

// tend checks the claims of this process every few seconds. A round sends one command if there are
// claims, or if a reply was lost. An idle process sends one command every five minutes.
func (e *engine) tend() {
	last := time.Duration(0) // how long the last command took
	for round := 1; ; round++ {
		pause := max(jittered(e.clock, tendEvery), rest(last), e.pace.now())
		if !clock.Sleep(e.clock, pause, e.life.Done()) {
			return
		}
		sent := e.clock.Now().Mono
		if err := e.tendOnce(round%seldom == 0); err != nil && e.life.Err() == nil {
			e.log.Warn().Err(err).Msg("tending the queue failed")
		}
		last = e.clock.Now().Mono - sent
		e.findStuck()
	}
}

func (e *engine) tendOnce(all bool) error {
	guard := e.current()
	e.mu.Lock()
	needed := all || len(e.claims) > 0 || e.unsure
	e.mu.Unlock()
	switch {
	case guard != nil && guard.Err() != nil:
		e.retire(guard)
	case guard != nil && needed:
		return e.tendClaims(guard)
	}
	return nil
}

// tendClaims reads the rows that are claimed under a slot, with one command. Then it does the
// following, with further commands if necessary:
//   - It ends claims whose replies were lost, and claims of earlier holders of the slot.
//   - It ends the contexts of handlers whose rows are lost or cancelled.
func (e *engine) tendClaims(guard *distlock.TryGuard) (err error) {
	e.mu.Lock()
	e.unsure = false // set first, because a claim may fail meanwhile
	before := maps.Clone(e.claims)
	e.mu.Unlock()
	defer func() {
		if err != nil {
			e.mu.Lock()
			e.unsure = true
			e.mu.Unlock()
		}
	}()
	found, err := e.claimedBy(guard)
	if err != nil {
		return err
	}
	return errors.Join(e.findLost(guard, before, found), e.endLeft(guard, found))
}

func (e *engine) claimedBy(guard *distlock.TryGuard) ([]rows.Row, error) {
	slot := rows.Slot{Locks: e.locks, Name: guard.Name()}
	return sent(e, func(ctx context.Context) ([]rows.Row, error) { return e.store.Claimed(ctx, slot) })
}

// findLost ends the contexts of the handlers whose rows were cancelled or lost.
func (e *engine) findLost(guard *distlock.TryGuard, before map[bson.ObjectID]*claimed,
	found []rows.Row) error {
	for _, c := range before {
		if c.guard != guard || c.row.ID.IsZero() || !c.isHandled() ||
			slices.ContainsFunc(found, c.isCurrent) {
			continue
		}
		now, err := e.reread(c.row.ID)
		if err != nil {
			return err
		}
		if !c.isHandled() || now != nil && c.isCurrent(*now) {
			continue
		}
		why := lost(c, now)
		e.log.Warn().Err(why).Msg("a row was lost while it was handled")
		c.lose(why)
	}
	return nil
}

func (e *engine) wake() error {
	now, err := e.serverNow()
	if err != nil {
		return err
	}
	n, err := sent(e, func(ctx context.Context) (int, error) { return e.store.Wake(ctx, now) })
	if n > 0 {
		signal(e.woken)
	}
	return e.unlessRefused("wake", err)
}

// unlessRefused returns nil if the server only refuses to change some rows. Otherwise it returns
// err. It logs the first refusal.
func (e *engine) unlessRefused(what string, err error) error {
	if !isRefused(err) {
		return err
	}
	if e.logOnce(what) {
		e.log.Error().Err(err).Msg("the server refuses to make rows ready")
	}
	return nil
}

// endLeft ends the given claims of a slot that have no handler. The guard holds the slot. If an
// earlier holder of the slot died, its attempts fail. In two cases no handler began, and endLeft
// gives the row back: the reply to the claim was lost, or an earlier holder released the slot
// before the server carried out the claim. Rows that the server refuses to change stay claimed.
func (e *engine) endLeft(guard *distlock.TryGuard, found []rows.Row) error {
	var left []rows.Row
	e.mu.Lock()
	for _, row := range found {
		own := row.Mark.Session == guard.Session()
		_, known := e.claims[row.Mark.Batch]
		if own && !known || !own && row.Mark.SlotFence < guard.Fence() {
			left = append(left, row)
		}
	}
	e.mu.Unlock()
	if len(left) == 0 {
		return nil
	}
	server, err := e.serverNow()
	if err != nil {
		return err
	}
	most := int64(math.MaxInt64) // for the rows of another queue, whose limit is unknown here
	if strings.HasPrefix(guard.Name(), e.prefix+":") {
		most = int64(e.cfg.MaxAttempts)
	}
	n := 0
	var ends []rows.Ending
	for _, row := range left {
		released := guard.TakeoverEvidence() == "" && row.Mark.SlotFence == guard.Fence()-1
		end := row.Failed(e.wall(), "", rows.DiedText)
		switch {
		case row.Mark.Cancelled:
			end = row.Cancelled(e.wall())
		case released || row.Mark.Session == guard.Session():
			end = row.Uncounted(rows.Ready)
		case row.Mark.Attempts >= most:
			end.To = rows.Dead
		default:
			end.NotBefore = notBefore(server, e.backoff(row.Mark.Attempts))
			e.wakeAt(end.NotBefore)
		}
		if end.To != rows.Dead {
			ends = append(ends, end)
			continue
		}
		one, bad := e.makeDead(end)
		n, err = n+one, errors.Join(err, bad)
	}
	if len(ends) > 0 {
		one, bad := e.sendEnds(ends...)
		n, err = n+one, errors.Join(err, e.unlessRefused("rescue", bad))
		signal(e.woken)
	}
	if n > 0 {
		e.log.Info().Str("slot", guard.Name()).Int("rows", n).Str("evidence", guard.TakeoverEvidence()).
			Msg("rows were rescued")
	}
	return err
}

// makeDead records that a row is dead, and calls OnDead. If the row's own process has recorded this
// first, makeDead does not call OnDead.
func (e *engine) makeDead(end rows.Ending) (int, error) {
	n, err := e.sendEnds(end)
	if n == 0 || err != nil || e.cfg.OnDead == nil {
		return n, e.unlessRefused("rescue", err)
	}
	row, err := e.reread(end.ID)
	if row == nil {
		e.log.Warn().Err(err).Str("row", rows.Text(end.ID)).Msg("OnDead is not called for a rescued row")
		return n, nil
	}
	e.hook("OnDead", e.cfg.OnDead, *row)
	return n, nil
}

// stuckAfter is the time from the end of a handler's context to the report that the handler is
// stuck.
const stuckAfter = 30 * time.Second

// findStuck reports handlers that have not returned although their contexts have ended.
func (e *engine) findStuck() {
	now := e.clock.Now().Mono
	n := 0
	for _, c := range e.flying() {
		c.mu.Lock()
		stuck := (!c.returned || c.stopWork != nil) && c.stopped > 0 && now-c.stopped >= stuckAfter
		c.mu.Unlock()
		if !stuck {
			continue
		}
		if n++; !c.stuck {
			c.stuck = true
			e.log.Error().Str("row", rows.Text(c.row.ID)).Dur("since", now-c.since).
				Msg("a handler does not return although its context has ended")
			e.hook("OnStuck", e.cfg.OnStuck, c.row)
		}
	}
	e.report(metrics.Stuck, float64(n))
}

// wakeDue wakes the retries of this process that become due, until the queue closes.
func (e *engine) wakeDue() {
	for {
		select {
		case <-e.due:
		case <-e.life.Done():
			return
		}
		if err := e.wake(); err != nil && e.life.Err() == nil {
			e.log.Warn().Err(err).Msg("waking retries failed")
			clock.Sleep(e.clock, e.pace.now(), e.life.Done())
		}
	}
}

// rescue ends the claims of dead processes, wakes retries and removes old done rows. Only the
// process with the rescue lock does this work. The other processes try to acquire that lock from
// time to time.
func (e *engine) rescue() {
	pause := e.rescueEvery()
	for {
		at := e.clock.Now().Mono
		guard, err := e.try(e.prefix+":rescue", "rescues the rows of dead processes")
		switch {
		case err == nil:
			e.rescues.Store(true)
			pause = e.rescueEvery()
			if !e.watch(guard) { // another process may be able to read rows
				pause = 2 * e.tryEvery()
			}
			e.rescues.Store(false)
			err = guard.Release()
		case errors.Is(err, distlock.ErrHeld):
			pause = max(e.tryEvery(), rest(e.clock.Now().Mono-at))
			err = nil
		}
		if err != nil && e.life.Err() == nil {
			e.log.Warn().Err(err).Msg("the rescue lock was not acquired, or was lost")
		}
		if isClosed(err) ||
			!clock.Sleep(e.clock, jittered(e.clock, max(pause, e.pace.now())), e.life.Done()) {
			return
		}
	}
}

// rescueEvery returns the time between two rounds of the rescue. In each round, the process tries
// to acquire the slots of all claimed rows. After enough rounds, it takes over the slot of a dead
// process.
func (e *engine) rescueEvery() time.Duration {
	return min(max(tendEvery, e.m.Config().Ping), e.tryEvery())
}

// tryEvery returns the time between two tries of the rescue lock.
func (e *engine) tryEvery() time.Duration {
	cfg := e.m.Config()
	return min(cfg.MaxWatchGap/3, cfg.Takeover/10)
}

// watch rescues rows until the lock is lost or the queue closes. It returns false if it has failed
// to read the slots during a whole ping interval.
func (e *engine) watch(guard *distlock.TryGuard) bool {
	ctx, cancel := context.WithCancel(guard.Context())
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	read := e.clock.Now().Mono
	for ctx.Err() == nil && guard.Err() == nil {
		at := e.clock.Now().Mono
		slots, err := sent(e, e.store.Slots)
		if err == nil {
			read = e.clock.Now().Mono
			err = errors.Join(e.rescueOnce(ctx, slots), e.wake(), e.purgeDone(ctx))
		}
		if err != nil && ctx.Err() == nil {
			e.log.Warn().Err(err).Msg("rescuing rows failed")
		}
		now := e.clock.Now().Mono
		if now-read >= e.m.Config().Ping {
			return false
		}
		pause := max(jittered(e.clock, e.rescueEvery()), e.pace.now(), min(now-at, e.limit))
		if !clock.Sleep(e.clock, pause, ctx.Done()) {
			break
		}
	}
	return true
}

// rescueOnce tries to acquire each of the given slots. When it acquires a slot, it ends the claims
// of the slot's earlier holders. It also logs odd rows, and releases the keys that done, dead or
// filtered rows hold.
func (e *engine) rescueOnce(ctx context.Context, slots []rows.Slot) error {
	const among = 1000 // odd rows are soon among the first ready rows, unless more are due later
	odd, err := sent(e, func(ctx context.Context) ([]rows.Malformed, error) {
		return e.store.Odd(ctx, among)
	})
	for _, one := range odd {
		if e.logOnce("odd " + rows.Key(one.ID)) {
			e.log.Warn().Err(&one).Msg("a row can never be claimed")
		}
	}
	if e.cfg.Key != "" {
		n, bad := sent(e, e.store.Settle)
		if err = errors.Join(err, bad); n > 0 {
			e.log.Warn().Int("rows", n).Msg("done, dead or filtered rows held keys")
		}
	}
	own := e.current()
	for _, slot := range slots {
		mine := own != nil && slot == rows.Slot{Locks: e.locks, Name: own.Name()}
		if ctx.Err() != nil || mine || !e.mayTry(slot) {
			continue
		}
		err = errors.Join(err, e.trySlot(slot.Name))
	}
	return err
}

// mayTry reports whether this process can detect that the holder of a slot is dead. The slot must
// be the lock of a queue, in the lock database of this process.
func (e *engine) mayTry(slot rows.Slot) bool {
	other := slot.Locks != "" && slot.Locks != e.locks
	if other && e.logOnce("slot "+slot.Locks+" "+slot.Name) {
		e.log.Warn().Str("slot", slot.Name).Str("locks", slot.Locks).Str("own", e.locks).
			Str("problem", "their locks are in another database: all processes of a queue need one "+
				"Config.Database").Msg("claimed rows are left alone")
	}
	return !other && strings.HasPrefix(slot.Name, prefix) // any other slot makes its row odd
}

func (e *engine) trySlot(slot string) error {
	guard, err := e.try(slot, "rescues rows")
	if errors.Is(err, distlock.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	found, err := e.claimedBy(guard) // if there are more rows, a later round ends their claims
	return errors.Join(err, e.endLeft(guard, found), guard.Release())
}

func (e *engine) purgeDone(ctx context.Context) error {
	if e.cfg.KeepDone == 0 {
		return nil
	}
	now, err := e.serverNow()
	if err != nil {
		return err
	}
	const lots = 20 // of a thousand rows, in one round
	for range lots {
		n, err := sent(e, func(c context.Context) (int, error) {
			return e.store.Purge(c, rows.Done, now.Add(-e.cfg.KeepDone))
		})
		if err != nil || n == 0 || ctx.Err() != nil {
			return err
		}
	}
	return nil
}
