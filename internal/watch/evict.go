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

// An Eviction is an evicted holder or waiter, with the evidence for the eviction.
type Eviction struct {
	Dead     Suspect
	Evidence string
}

// EvictDead evicts the dead suspects among the first n suspects of a view. It begins with the last
// suspect, so no dead waiter is granted the lock. EvictDead leaves sessions of this process to the
// reaper, except a holder whose lease has expired. An error that matches [catalog.ErrNoMatch] means
// that the lock has changed, or may have changed. The caller must then read the lock again.
func (j *Judge) EvictDead(ctx context.Context, v View, n int) (evicted []Eviction, err error) {
	done := condemned{}
	for _, one := range slices.Backward(v.Suspects[:n]) {
		if !one.Dead() || one.Renewal == 0 && one.Process == j.Pinger.Process() {
			continue
		}
		switch evidence, e := j.evict(ctx, v, one, done); {
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

// evict condemns the process of a dead holder or waiter, and removes the holder or waiter from the
// lock. The removal also grants the lock to the next waiter. An error that matches
// [catalog.ErrNoMatch] means that another contender was faster, or that the process is alive.
func (j *Judge) evict(ctx context.Context, v View, dead Suspect, done condemned) (
	evidence string, err error,
) {
	evidence, err = j.condemn(ctx, v, dead, done)
	if err != nil {
		return "", err
	}
	evict := transition.Evict{Holder: dead.Holder(v.Name), Evidence: evidence}
	_, grants, err := j.Store.Apply(ctx, evict)
	if err != nil {
		return "", beforeTakeover("evict", unknownAsNoMatch(err))
	}
	j.Log.Warn().Str("lock", catalog.Printable(v.Name, 200)).
		Str("process", catalog.Printable(dead.Process, 200)).Bool("waited", dead.Waits).
		Str("evidence", evidence).Msg("evicted")
	if j.Events != nil {
		j.Events.Evicted(v.Name, dead, evidence)
	}
	j.Granted(grants)
	return evidence, nil
}

// condemned holds the processes that were condemned after one read. If such a process has further
// sessions, it is not condemned again.
type condemned map[string]bool

// condemn condemns the process of a suspect before the eviction, and returns the evidence as text.
// It first verifies that the server that answered the read is still primary. If the suspect is
// evicted because its lease has expired, condemn sends no command, because the process may be
// alive. An error that matches [catalog.ErrNoMatch] means that the process is alive, or that
// another contender was faster. The caller must then read the lock again.
func (j *Judge) condemn(ctx context.Context, v View, dead Suspect, done condemned) (string, error) {
	d, ping := dead.Decision, dead.PingState.Ping
	evidence := fmt.Sprintf("rule %s: %s", dead.Rule(), d.Reason)
	if dead.Renewal != 0 { // the process may be alive; the eviction names the watched renewal
		return evidence, nil
	}
	if err := j.samePrimary(ctx, v, dead); err != nil {
		return "", err
	}
	if dead.Evidence.Foreign() || done[dead.Process] || ping != nil && ping.Condemned != nil {
		return evidence, nil
	}
	err := j.Store.ApplyPing(ctx, transition.Condemn{
		Process: dead.Process, Watched: ping,
		How: catalog.Condemnation{By: j.Pinger.Process(), Evidence: evidence},
	})
	if err != nil {
		return "", beforeTakeover("condemn", unknownAsNoMatch(err))
	}
	done[dead.Process] = true
	j.Log.Warn().Str("process", catalog.Printable(dead.Process, 200)).
		Str("evidence", evidence).Msg("condemned")
	if j.Events != nil {
		j.Events.Condemned(dead.Process, dead.Rule(), evidence)
	}
	return evidence, nil
}

// samePrimary verifies, right before a takeover, that the server that answered the reads is still
// primary. A former primary may answer reads until it detects that it was cut off.
//
// For a foreign holder, samePrimary also reads the lock again, sends a linearizable read, and calls
// Hello once more (R5 in docs/safety.md). For a holder of distlock that is not necessary, because
// only the primary can carry out the condemnation that follows.
func (j *Judge) samePrimary(ctx context.Context, v View, dead Suspect) error {
	if err := j.isPrimary(ctx, v); err != nil || !dead.Evidence.Foreign() {
		return err
	}
	again, err := j.Read(ctx, v.Name)
	if err != nil {
		return beforeTakeover("read", err)
	}
	same := func(now Suspect) bool {
		return now.TS == dead.TS && now.Process == dead.Process && now.Waits == dead.Waits && now.Dead()
	}
	if !slices.ContainsFunc(again.Suspects, same) {
		return fmt.Errorf("%w: the last read showed another state", catalog.ErrNoMatch)
	}
	lock, err := j.Store.Read(ctx, v.Name)
	_, holds := lock.HeldBy(dead.TS)
	_, waits := lock.WaitedBy(dead.TS)
	if errors.Is(err, catalog.ErrNotFound) || err == nil && !holds && !waits {
		return fmt.Errorf("%w: the lock changed before the takeover", catalog.ErrNoMatch)
	}
	if err != nil {
		return beforeTakeover("linearizable read", err)
	}
	return j.isPrimary(ctx, v)
}

func (j *Judge) isPrimary(ctx context.Context, v View) error {
	server, err := j.Store.Hello(ctx)
	if err != nil {
		return beforeTakeover("hello", err)
	}
	j.Pinger.SetServer(server)
	if server.Primary != v.Primary {
		return fmt.Errorf("%w: another primary was elected during the watch", catalog.ErrNoMatch)
	}
	return nil
}

// unknownAsNoMatch makes an error with an unknown outcome also match [catalog.ErrNoMatch], because
// the lock must be read again.
func unknownAsNoMatch(err error) error {
	if errors.Is(err, catalog.ErrUnknownOutcome) {
		return fmt.Errorf("%w: %w", catalog.ErrNoMatch, err)
	}
	return err
}

func beforeTakeover(step string, err error) error {
	return fmt.Errorf("%s before the takeover: %w", step, err)
}

// maxSilent limits the silent waiters that are evicted after one read.
const maxSilent = 16

// EvictSilent evicts, from the first n suspects, the waiters whose processes have missed two pings.
// So no release grants the lock to a dead process. EvictSilent condemns no process. If an evicted
// process is alive, it detects the removal of its entry, and queues again at its former place.
//
// EvictSilent returns the number of evicted waiters, and the time until another waiter may have
// missed two pings. The time is zero if no waiter has missed one ping.
//
// Waiters also miss pings while the server is unavailable. So this process must have observed the
// waiter for longer than a ping interval, and the server must have acknowledged this process's own
// pings for as long. If all holders are dead, a waiter is about to be granted the lock. Then no
// observation is required. The age of the last ping by the server's clock is sufficient.
func (j *Judge) EvictSilent(ctx context.Context, v View, n int) (
	evicted int, next time.Duration,
) {
	dead := !slices.ContainsFunc(v.Holders(), func(one Suspect) bool { return !one.Dead() })
	for _, one := range v.Suspects[:n] {
		left, silent := j.missedPing(&one, dead)
		switch {
		case !silent, left > 0:
			if silent && (next == 0 || left < next) {
				next = left
			}
			continue
		case evicted >= maxSilent:
			return evicted, next
		}
		gone := one.Holder(v.Name)
		gone.Waits = true
		one.Silent = true
		evidence := "rule silent: its process has missed two pings; " + one.Decision.Reason
		_, grants, err := j.Store.Apply(ctx, transition.Evict{Holder: gone, Evidence: evidence})
		if errors.Is(err, catalog.ErrNoMatch) {
			continue // the waiter was granted the lock, or has left the queue
		}
		if err != nil {
			j.Log.Debug().Err(err).Str("lock", catalog.Printable(v.Name, 200)).
				Msg("evicting a silent waiter failed")
			return evicted, next
		}
		evicted++
		j.Log.Info().Str("lock", catalog.Printable(v.Name, 200)).
			Str("process", catalog.Printable(one.Process, 200)).Msg("evicted a silent waiter")
		if j.Events != nil {
			j.Events.Evicted(v.Name, one, evidence)
		}
		j.Granted(grants)
	}
	return evicted, next
}

// missedPing reports whether the process of a waiter has missed at least one ping. If so, the first
// result is the time until the waiter may be evicted, or zero if it may be evicted now. If byServer
// is set, the age of the ping by the server's clock suffices, see EvictSilent.
func (j *Judge) missedPing(one *Suspect, byServer bool) (left time.Duration, missed bool) {
	e, ping := one.Evidence, one.PingState.Ping
	if !one.Waits || one.Dead() || one.Process == j.Pinger.Process() || e.Foreign() ||
		ping == nil || !ping.HasSeq {
		return 0, false
	}
	interval := e.PingInterval
	if interval <= 0 {
		interval = j.Policy.PingInterval
	}
	most := interval + interval/8 // longest time between two pings: the jitter is a tenth
	watched := j.seen.unchanged(e.Subject())
	age := watched
	if !e.Server.IsZero() {
		age = max(age, e.Server.Sub(e.Ping))
	}
	since, steady := j.Pinger.Steady()
	switch {
	case age < most:
		return 0, false
	case byServer:
		return max(0, 2*interval-age), true
	case !steady:
		return 0, false
	}
	own := j.Clock.Now().Mono - since
	return max(0, 2*interval-age, most-watched, most-own), true
}
