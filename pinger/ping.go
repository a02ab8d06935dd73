package pinger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
)

// A beat is the current process id and the state of its ping document.
type beat struct {
	id      *identity // nil before the first id
	process string    // process id in id; empty before the first id
	sent    int64     // number of the last ping that was sent; no number is sent twice
	known   bool      // a ping was acknowledged, so the document exists
	failing bool      // a series of failed pings lasts
	// mine contains the send times of the last acknowledged ping and of all later pings. The field
	// local of the ping document must contain one of these times.
	mine []time.Time
}

// mostMine is the maximum length of beat.mine. When mine is full, the oldest time after the
// acknowledged ping is dropped. If the document contains a dropped time, the process assumes a
// twin, a second process with the same id.
const mostMine = 64

// errRemoved reports that a ping has created the ping document again after its removal.
var errRemoved = errors.New("it was removed")

// Ping sends one ping. It renews the term, begins a new term, or ends the term. It sends one
// command, or up to three when the process takes a new id. The ping loop calls Ping. A test or a
// scheduler may call Ping instead of the loop, but never concurrently with it.
//
// Errors: those of [catalog.Pings.Ping]. After an error the term is unchanged, unless the process
// id was given up.
func (p *LockPinger) Ping(ctx context.Context) error {
	err := p.pingOnce(ctx)
	if errors.Is(err, ErrCondemned) || errors.Is(err, ErrForked) {
		p.stats.failures.Add(1)
		p.giveUpProcess(ctx, err)
		err = p.pingOnce(ctx)
	}
	if err != nil {
		p.steady.Store(-1)
		p.stats.failures.Add(1)
		if !p.beat.failing && p.stopping.Err() == nil {
			p.beat.failing = true
			p.log.Warn().Err(err).Str("process", p.beat.process).Msg("ping failed")
		}
		return fmt.Errorf("pinger: %w", err)
	}
	if p.beat.failing {
		p.beat.failing = false
		p.log.Info().Str("process", p.beat.process).Msg("ping succeeds again")
	}
	p.stats.pings.Add(1)
	p.steady.CompareAndSwap(-1, int64(p.clock.Now().Mono))
	return nil
}

func (p *LockPinger) pingOnce(ctx context.Context) error {
	if p.beat.process == "" {
		id, err := p.cfg.NewProcess()
		if err != nil {
			return fmt.Errorf("make a process id: %w", err)
		}
		p.beat = beat{id: newIdentity(id), process: id, failing: p.beat.failing}
	}
	ctx, cancel := context.WithTimeout(ctx, p.pingLimit())
	defer cancel()
	sent := p.clock.Now() // before the first send of the request (R3 in docs/safety.md)
	p.beat.sent++
	heartbeat := catalog.Heartbeat{
		Process: p.beat.process, Seq: p.beat.sent, Local: sent.Wall, Mine: slices.Clone(p.beat.mine),
		Takeover: p.cfg.Takeover, Interval: p.cfg.Interval,
	}
	if len(p.beat.mine) == mostMine {
		p.beat.mine = slices.Delete(p.beat.mine, 1, 2) // the first is the acknowledged ping
	}
	p.beat.mine = append(p.beat.mine, sent.Wall)
	reply, err := p.cfg.Store.Ping(ctx, heartbeat)
	received := p.clock.Now()
	err = p.verdict(reply, err)
	if err == nil && !reply.At.IsZero() {
		p.stats.skew.Store(int64(reply.At.Sub(sent.Wall.Add((received.Mono - sent.Mono) / 2))))
	}
	if told := p.cfg.Told; told != nil && (err == nil || p.stopping.Err() == nil) {
		told.Pinged(p.beat.process, received.Mono-sent.Mono, time.Duration(p.stats.lateness.Load()), err)
	}
	if err != nil {
		return err
	}
	p.beat.known, p.beat.mine = true, []time.Time{sent.Wall}
	p.log.Trace().Str("process", p.beat.process).Int64("seq", reply.Seq).Msg("ping")
	t := p.renewed(sent)
	select {
	case p.chores <- chore{term: t, serverTime: reply.At}:
	default: // the chore loop is busy; the next ping tries again
	}
	return nil
}

// verdict judges the reply to the last ping. It returns nil for an acknowledged ping. If the
// process must take a new id, the error matches ErrCondemned or ErrForked.
func (p *LockPinger) verdict(reply catalog.Pinged, err error) error {
	switch {
	case errors.Is(err, catalog.ErrCondemned):
		return fmt.Errorf("%w: %w", ErrCondemned, err)
	case errors.Is(err, catalog.ErrTwin), errors.Is(err, catalog.ErrMalformed):
		return fmt.Errorf("%w: %w", ErrForked, err)
	case err != nil:
		return err
	case reply.Seq != p.beat.sent:
		return fmt.Errorf("%w: %w, ping %d was answered with seq %d",
			ErrForked, catalog.ErrTwin, p.beat.sent, reply.Seq)
	case reply.Inserted && p.beat.known:
		return fmt.Errorf("%w: %w, ping %d recreated it", ErrForked, errRemoved, p.beat.sent)
	}
	return nil
}

func (p *LockPinger) renewed(sent clock.Reading) *Term {
	old := p.term.Load()
	if old != nil && old.id == p.beat.id && old.renew(sent) {
		return old
	}
	t := &Term{id: p.beat.id, hold: p.hold, clock: p.clock, done: make(chan struct{}), sent: sent}
	p.term.Store(t)
	if old != nil {
		p.log.Info().Str("process", t.Process()).AnErr("before", old.Err()).Msg("a new term begins")
	}
	p.cfg.Owner.TermBegan(t)
	p.releaseAgain() // some releases wait for a term
	return t
}

// giveUpProcess gives up the process id. It ends the term, so all guards are lost. The next ping
// uses a new id.
func (p *LockPinger) giveUpProcess(ctx context.Context, cause error) {
	p.log.Warn().Err(cause).Str("process", p.beat.process).Msg("process over")
	p.stats.sessions.Add(1)
	if t := p.Last(); t != nil && t.id == p.beat.id {
		t.end(cause)
	}
	if p.cfg.Told != nil {
		p.cfg.Told.Over(p.beat.process, cause)
	}
	old := p.beat
	old.id.giveUp(cause)
	p.releaseAgain() // drops the releases if there is a twin
	p.beat = beat{failing: old.failing}
	if errors.Is(cause, errRemoved) {
		// The last ping created the ping document again, under the old id. This process sends no further
		// ping under that id, so it removes the document.
		if err := p.cfg.Store.ApplyPing(ctx, transition.RemovePing{Process: old.process}); err != nil {
			p.log.Debug().Err(err).Str("process", old.process).Msg("old ping not removed")
		}
	}
}

// pingLimit returns the time limit of one ping: half of the rest of the term, but at least the ping
// interval and at most Config.Limit.
func (p *LockPinger) pingLimit() time.Duration {
	left := p.hold
	if t := p.Term(); t != nil {
		left = t.Left()
	}
	return min(p.cfg.Limit, max(p.cfg.Interval, left/2))
}

// noteLateness records the delay of the ping loop. The loop is late when the process was paused or
// starved. noteLateness logs a warning for the first late ping of a series.
func (p *LockPinger) noteLateness(due clock.Reading) {
	late := p.clock.Now().Mono - due.Mono
	p.stats.lateness.Store(int64(late))
	if int64(late) > p.stats.maxLate.Load() { // only the ping loop writes maxLate
		p.stats.maxLate.Store(int64(late))
	}
	switch {
	case late > p.cfg.Interval && !p.stats.lateEpisode:
		p.stats.lateEpisode = true
		p.log.Warn().Dur("late", late).Dur("interval", p.cfg.Interval).Msg("ping loop is late")
	case late <= p.cfg.Interval/2:
		p.stats.lateEpisode = false
	}
}
