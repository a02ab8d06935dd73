package contend

import (
	"context"
	"errors"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

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
// must have been acknowledged for as long.
func (j *Judge) PassOver(ctx context.Context, s Scene, n int) (passed int, again time.Duration) {
	for _, one := range s.Judged[:n] {
		left, silent := j.silent(&one)
		switch {
		case !silent, left > 0:
			if silent && (again == 0 || left < again) {
				again = left
			}
			continue
		case passed >= maxPassed:
			return passed, again
		}
		dead := one.Watched(s.Name)
		dead.Waits = true
		one.Passed = true
		evidence := "rule silent: its process has missed two pings; " + one.Decision.Reason
		_, grants, err := j.Store.Apply(ctx, transition.Evict{Holder: dead, Evidence: evidence})
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
// zero when it has.
func (j *Judge) silent(one *Judged) (left time.Duration, silent bool) {
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
	if !steady || age < little {
		return 0, false
	}
	own := j.Clock.Now().Mono - since
	return max(0, 2*interval-age, little-watched, little-own), true
}
