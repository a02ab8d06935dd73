package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// An Eviction is that of one dead holder or waiter, and why it was evicted.
type Eviction struct {
	Dead     Judged
	Evidence string
}

// EvictDead evicts the dead processes among the first n suspects of a lock. The last come first, so
// that no dead waiter is granted the lock on the way. Entries of this process are left to its
// reaper, except a holder whose lease has expired. Errors, if none was evicted: one that matches
// [catalog.ErrNoMatch] when the lock has changed, or may have: read it again; others.
func (j *Judge) EvictDead(ctx context.Context, s Scene, n int) (evicted []Eviction, err error) {
	done := condemned{}
	for _, one := range slices.Backward(s.Judged[:n]) {
		if !one.Dead() || one.Renewal == 0 && one.Process == j.Process.Process() {
			continue
		}
		switch evidence, e := j.evict(ctx, s, one, done); {
		case e == nil:
			evicted = append(evicted, Eviction{one, evidence})
		case !errors.Is(e, catalog.ErrNoMatch), errors.Is(e, catalog.ErrUnknownOutcome):
			return evicted, e
		default:
			err = e
		}
	}
	if len(evicted) > 0 {
		err = nil
	}
	return evicted, err
}

// evict takes a dead holder or waiter out of a lock, on the evidence of its watch: make sure of the
// primary, condemn its process, and take it out, by which the next in line is granted the lock. An
// error that matches catalog.ErrNoMatch says that somebody was faster or the process lives.
func (j *Judge) evict(ctx context.Context, s Scene, dead Judged, done condemned) (
	evidence string, err error,
) {
	evidence, err = j.condemn(ctx, s, dead, done)
	if err != nil {
		return "", err
	}
	evict := transition.Evict{Holder: dead.Watched(s.Name), Evidence: evidence}
	_, grants, err := j.Store.Apply(ctx, evict)
	if err != nil {
		return "", before("evict", inDoubt(err))
	}
	j.Log.Warn().Str("lock", catalog.Printable(s.Name, 200)).
		Str("process", catalog.Printable(dead.Process, 200)).Bool("waited", dead.Waits).
		Str("evidence", evidence).Msg("evicted")
	if j.Told != nil {
		j.Told.Evicted(s.Name, dead, evidence)
	}
	j.Granted(grants)
	return evidence, nil
}

// HolderOf names a holder or waiter of a lock for the store.
func HolderOf(lock string, p catalog.Participant) catalog.Holder {
	return catalog.Holder{Session: catalog.Session{Name: lock, TS: p.TS}, Process: p.Process}
}

// condemned are the processes that were condemned on one scene: their other places need no mark
// of their own.
type condemned map[string]bool

// condemn carries out the steps between a verdict Take and the eviction: it makes sure that the
// server that answered the read is primary now, and marks the process, so that it cannot ping any
// more. It returns the evidence in words. For a holder whose lease expired there is nothing to do.
// An error that matches [catalog.ErrNoMatch] reports that the process lives, or that another
// contender was faster: read the lock again.
func (j *Judge) condemn(ctx context.Context, s Scene, dead Judged, done condemned) (string, error) {
	d, ping := dead.Decision, dead.PingState.Ping
	evidence := fmt.Sprintf("rule %s: %s", dead.Rule(), d.Reason)
	if dead.Renewal != 0 { // its process may live; the taking names the renewal that was watched
		return evidence, nil
	}
	if err := j.samePrimary(ctx, s, dead); err != nil {
		return "", err
	}
	if dead.Evidence.Foreign() || done[dead.Process] || ping != nil && ping.Condemned != nil {
		return evidence, nil
	}
	err := j.Store.ApplyPing(ctx, transition.Condemn{
		Process: dead.Process, Watched: ping,
		How: catalog.Condemnation{By: j.Process.Process(), Evidence: evidence},
	})
	if err != nil {
		return "", before("condemn", inDoubt(err))
	}
	done[dead.Process] = true
	j.Log.Warn().Str("process", catalog.Printable(dead.Process, 200)).
		Str("evidence", evidence).Msg("condemned")
	if j.Told != nil {
		j.Told.Condemned(dead.Process, dead.Rule(), evidence)
	}
	return evidence, nil
}

// samePrimary makes sure, right before a takeover, that the server that answered the watch is
// primary now. An old primary that was cut off may answer reads for an election timeout. A holder
// of ours is condemned afterwards, by a write that only the true primary can carry out. For a
// foreign one, which cannot be condemned, the last look is made once more between two questions for
// the primary and before a linearizable read, so that it is the true primary's (R5).
func (j *Judge) samePrimary(ctx context.Context, s Scene, dead Judged) error {
	if err := j.isPrimary(ctx, s); err != nil || !dead.Evidence.Foreign() {
		return err
	}
	again, err := j.Look(ctx, s.Name)
	if err != nil {
		return before("look", err)
	}
	same := func(now Judged) bool {
		return now.TS == dead.TS && now.Process == dead.Process && now.Waits == dead.Waits && now.Dead()
	}
	if !slices.ContainsFunc(again.Judged, same) {
		return fmt.Errorf("%w: the last look showed another picture", catalog.ErrNoMatch)
	}
	lock, err := j.Store.Read(ctx, s.Name)
	_, holds := lock.HeldBy(dead.TS)
	_, waits := lock.WaitedBy(dead.TS)
	if errors.Is(err, catalog.ErrNotFound) || err == nil && !holds && !waits {
		return fmt.Errorf("%w: the lock changed before the takeover", catalog.ErrNoMatch)
	}
	if err != nil {
		return before("read", err)
	}
	return j.isPrimary(ctx, s)
}

func (j *Judge) isPrimary(ctx context.Context, s Scene) error {
	server, err := j.Store.Hello(ctx)
	if err != nil {
		return before("hello", err)
	}
	j.Process.SetServer(server)
	if server.Primary != s.Primary {
		return fmt.Errorf("%w: another primary was elected during the watch", catalog.ErrNoMatch)
	}
	return nil
}

// inDoubt makes an unknown outcome one of a picture that has changed: perhaps it has, the next look
// tells.
func inDoubt(err error) error {
	if errors.Is(err, catalog.ErrUnknownOutcome) {
		return fmt.Errorf("%w: %w", catalog.ErrNoMatch, err)
	}
	return err
}

// before words an error of the last steps before a takeover.
func before(step string, err error) error {
	return fmt.Errorf("%s before the takeover: %w", step, err)
}

// maxPassed is how many waiters are passed over after one look.
const maxPassed = 16

// PassOver takes those waiters among the first n suspects out of the line whose processes have
// missed two pings, so that no release grants the lock to somebody who has died meanwhile. It
// condemns nobody and takes no lock: a live process finds its place gone and enters again, before
// those who came later. It returns how many it has taken out, and how long to wait until another
// may have missed two; zero when none has missed one.
//
// That a whole line is silent may be the server's doing, which was away and took no pings. So the
// own watch must cover more than an interval, in which every live process pings, and the own pings
// must have been acknowledged for as long. Where all holders are dead it need not: whoever takes
// them out may have no time for that, and must not give the lock to another dead one.
func (j *Judge) PassOver(ctx context.Context, s Scene, n int) (passed int, again time.Duration) {
	dead := !slices.ContainsFunc(s.Holders(), func(one Judged) bool { return !one.Dead() })
	for _, one := range s.Judged[:n] {
		left, silent := j.silent(&one, dead)
		switch {
		case !silent, left > 0:
			if silent && (again == 0 || left < again) {
				again = left
			}
			continue
		case passed >= maxPassed:
			return passed, again
		}
		gone := one.Watched(s.Name)
		gone.Waits = true
		one.Passed = true
		evidence := "rule silent: its process has missed two pings; " + one.Decision.Reason
		_, grants, err := j.Store.Apply(ctx, transition.Evict{Holder: gone, Evidence: evidence})
		if err != nil {
			if !errors.Is(err, catalog.ErrNoMatch) {
				j.Log.Debug().Err(err).Str("lock", catalog.Printable(s.Name, 200)).Msg("not passed over")
				return passed, again
			}
			continue // it was granted the lock, or has left
		}
		passed++
		j.Log.Info().Str("lock", catalog.Printable(s.Name, 200)).
			Str("process", catalog.Printable(one.Process, 200)).Msg("passed over")
		if j.Told != nil {
			j.Told.Evicted(s.Name, one, evidence)
		}
		j.Granted(grants)
	}
	return passed, again
}

// silent reports whether a waiter has missed a ping at least, and how long until it has missed two;
// zero when it has. unwatched says that the server's clock is enough to know that.
func (j *Judge) silent(one *Judged, unwatched bool) (left time.Duration, silent bool) {
	e, ping := one.Evidence, one.PingState.Ping
	if !one.Waits || one.Dead() || one.Process == j.Process.Process() || e.Foreign() ||
		ping == nil || !ping.HasSeq || j.Steady == nil {
		return 0, false
	}
	interval := e.PingInterval
	if interval <= 0 {
		interval = j.Policy.PingInterval
	}
	little := interval + interval/8 // pings come within a tenth of it
	watched := j.seen.unchanged(e.Subject())
	age := watched
	if !e.Server.IsZero() {
		age = max(age, e.Server.Sub(e.Ping))
	}
	since, steady := j.Steady()
	switch {
	case age < little:
		return 0, false
	case unwatched:
		return max(0, 2*interval-age), true
	case !steady:
		return 0, false
	}
	own := j.Clock.Now().Mono - since
	return max(0, 2*interval-age, little-watched, little-own), true
}
