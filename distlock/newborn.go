package distlock

import (
	"errors"
	"fmt"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// A lock document that is new may stand in place of one that was deleted under its holder: MongoDB
// drops the collection lockpings, then locks, when a config server is upgraded to 7.0, and operators
// drop them. The holder learns of it by its next ping. This file keeps a process that existed before
// from taking the lock meanwhile: its own ping document was deleted as well.

// settling is the time in which a process that reaches the server learns by a ping that its document
// was removed.
func (m *Manager) settling() time.Duration { return m.cfg.Ping + m.cfg.Ping/10 + m.cfg.CommandTimeout }

// errPingRemoved is the reason for which a process acquires no lock whose document is new.
var errPingRemoved = errors.New("the ping document of this process was removed, and perhaps the " +
	"locks of others with it, who learn of it with their next pings")

// errNotShown is the cause of a *LostError before there was a guard.
var errNotShown = errors.New("the new lock document does not show the session any more")

// checkNew checks a session that has acquired a lock at an instant of the server's clock, zero if
// that is not known. If the document may be younger than the time of settling, the ping document of
// this process must be as its last acknowledged ping left it, and must not have been removed in that
// time. The fence tells the age: a document is made with a fence of the server's clock in
// milliseconds, and grants raise it more slowly than that clock runs. On an error the session has
// been given back. Errors: [ErrNoHeartbeat]; *LostError; those of reading.
func (m *Manager) checkNew(s *session, at time.Time) error {
	if at.IsZero() {
		at = m.cfg.Clock.Now().Wall.Add(m.pinger.Stats().Skew)
	}
	if age := at.Sub(time.UnixMilli(s.fence)); age < -time.Second || age >= m.settling() {
		return nil
	}
	err := m.checkPing(s)
	if err == nil {
		return nil
	}
	m.pinger.ReleaseSoon(s.request.Session, s.term)
	return acquiring(s.request.Name, err)
}

// checkPing returns nil if the ping document of the session's process was not removed. A ping that
// is on its way may have made it anew: its answer tells.
func (m *Manager) checkPing(s *session) error {
	now := func() time.Duration { return m.cfg.Clock.Now().Mono }
	if removed, ok := m.pinger.Removed(); ok && now()-removed < m.settling() {
		return fmt.Errorf("%w: %w", ErrNoHeartbeat, errPingRemoved)
	}
	for until := now() + m.cfg.CommandTimeout; ; {
		before := s.term.Acknowledged()
		scene, err := catalog.LookAt(m.life, m.locks, s.request.Name)
		if err != nil {
			return err
		}
		ping := scene.Pings[s.request.Process].Ping
		holds := false
		if scene.Lock != nil {
			_, holds = scene.Lock.HeldBy(s.request.TS)
		}
		switch {
		case !holds:
			return &LostError{Name: s.request.Name, Fence: s.fence, Cause: errNotShown}
		case ping == nil:
			return fmt.Errorf("%w: %w", ErrNoHeartbeat, errPingRemoved)
		case ping.Seq == before || ping.Seq == s.term.Acknowledged():
			return nil
		case now() >= until || !clock.Sleep(m.cfg.Clock, grace, m.closed):
			return fmt.Errorf("%w: the answer of a ping is not there", ErrNoHeartbeat)
		}
	}
}
