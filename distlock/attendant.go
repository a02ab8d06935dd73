package distlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/contend"
)

// An attendant looks after all waiters of a Manager. There is one at most, and only while somebody
// waits or did a ping interval ago. What it sends does not depend on how many wait:
//
//   - a change stream brings what is granted to the process, where there are change streams;
//   - where there are none, or while there is none, one read asks for it. Its pauses are a small part
//     of the time in which nothing has moved, a smaller one if somebody is near the front, so that
//     asking adds the same share to every wait; at least four round trips, so that they follow the
//     server; at most PollMax;
//   - one read each ping interval, and a sixth of it after somebody came, shows who stands before
//     them and how their pings are. It starts and goes on with the watch of holders and waiters, and
//     finds a grant that was not told;
//   - one read looks for deadlocks, when somebody who holds a lock has waited for a second.
type attendant struct {
	m    *Manager
	room *room

	asked    time.Duration // monotonic time of the last question for grants
	attended time.Duration // that of the last look at the locks, and when the next is due
	next     time.Duration
	idle     time.Duration // since when nobody waits; -1 while somebody does
	rtt      time.Duration // of a question, smoothed
	ask      bool          // ask at once: the stream opened or broke
	stream   *following
}

// Bounds of the pauses between two questions, see attendant.
const (
	roundTrips  = 4
	nearFront   = 64 // the pause is this part of the time in which nothing moved
	farFromIt   = 16 // for those who have more than nearPlaces before them
	nearPlaces  = 16
	pollsInPoll = 50 // the shortest pause is Poll divided by it
)

func newAttendant(m *Manager) *attendant {
	now := m.cfg.Clock.Now().Mono
	t := &attendant{m: m, room: m.room, asked: now, attended: now, idle: -1}
	t.next = now + t.interval()
	return t
}

// interval is the time between two looks at the locks: the ping interval, and never so long that a
// late look would break the watch.
func (t *attendant) interval() time.Duration { return min(t.m.cfg.Ping, t.m.cfg.MaxWatchGap/2) }

// patience is how long somebody has waited when his lock is looked at for the first time. Most waits
// are over by then, and cost nothing but entering.
func (t *attendant) patience() time.Duration { return max(t.m.cfg.Poll, t.interval()/6) }

func (t *attendant) run() {
	ctx, cancel := context.WithCancel(context.Background())
	stop := make(chan struct{})
	go func() { // ends with run: commands under way are given up at Close
		select {
		case <-t.m.closed:
		case <-stop:
		}
		cancel()
	}()
	defer close(stop)
	t.stream = follow(t.m, t.room)
	defer func() { t.stream.end() }()
	for !t.m.closing() {
		by, names := t.room.waiters()
		pause := t.due(by)
		switch {
		case len(names) == 0:
			if t.retire() {
				return
			}
			pause = max(t.idle+t.m.cfg.Ping-t.m.cfg.Clock.Now().Mono, time.Millisecond)
		case pause <= 0:
			t.work(ctx, by, names)
			continue
		}
		t.sleep(pause)
	}
}

// retire notes that nobody waits and reports whether that has been so for a ping interval.
func (t *attendant) retire() bool {
	now := t.m.cfg.Clock.Now().Mono
	if t.idle < 0 {
		t.idle = now
	}
	if now-t.idle < t.m.cfg.Ping {
		return false
	}
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	for _, w := range t.room.inside {
		if w.stands {
			return false
		}
	}
	t.room.attends = false
	return true
}

func (t *attendant) sleep(pause time.Duration) {
	timer := t.m.cfg.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-t.room.wake:
	case <-t.stream.changed:
		t.ask = true
	case <-t.m.closed:
	}
}

// due returns how long nothing is to be done; zero or less when something is.
func (t *attendant) due(by map[string][]*waiter) time.Duration {
	now := t.m.cfg.Clock.Now().Mono
	next := t.next
	if len(by) > 0 {
		t.idle = -1
	}
	near := false
	for _, ws := range by {
		for _, w := range ws {
			w.mu.Lock()
			if !w.looked {
				next = min(next, max(w.since, t.attended)+t.patience())
			}
			next = min(next, w.searchDue(t.m.cfg.Ping))
			near = near || w.place < nearPlaces
			w.mu.Unlock()
		}
	}
	switch {
	case t.ask:
		return 0
	case !t.stream.open.Load():
		next = min(next, t.asked+t.askPause(near, now))
	}
	return next - now
}

// askPause is the pause after the last question for grants.
func (t *attendant) askPause(near bool, now time.Duration) time.Duration {
	t.room.mu.Lock()
	still := now - t.room.moved
	t.room.mu.Unlock()
	share := time.Duration(farFromIt)
	if near {
		share = nearFront
	}
	return t.m.askPause(still, share, t.rtt)
}

// askPause is the pause before a question is repeated, where nothing has moved for a time.
func (m *Manager) askPause(still, share, rtt time.Duration) time.Duration {
	least := max(roundTrips*rtt, m.cfg.Poll/pollsInPoll, time.Millisecond)
	return m.pinger.Jitter(min(max(still/share, least), m.cfg.PollMax), 0.2)
}

// work does what is due.
func (t *attendant) work(ctx context.Context, by map[string][]*waiter, names []string) {
	now := t.m.cfg.Clock.Now().Mono
	attend := now >= t.next
	var search []*waiter
	for _, ws := range by {
		for _, w := range ws {
			w.mu.Lock()
			attend = attend || !w.looked && now >= max(w.since, t.attended)+t.patience()
			if now >= w.searchDue(t.m.cfg.Ping) {
				search = append(search, w)
			}
			w.mu.Unlock()
		}
	}
	switch {
	case attend:
		t.attend(ctx, by, names)
	case len(search) > 0:
		t.m.searchDeadlocks(ctx, search)
	default:
		t.askFor(ctx, by, names)
	}
}

// askFor asks which of the locks were granted to this process, and which were left free.
func (t *attendant) askFor(ctx context.Context, by map[string][]*waiter, names []string) {
	t.ask = false
	sent := t.m.cfg.Clock.Now().Mono
	awards, free, err := t.m.locks.Awarded(ctx, t.m.Process(), names)
	t.asked = t.m.cfg.Clock.Now().Mono
	t.room.questions.note(ctx, err)
	if err != nil {
		t.failed(by, err)
		return
	}
	took := t.asked - sent
	t.rtt += (took - t.rtt) / 4
	t.room.deliver(awards)
	for _, name := range free {
		t.settle(ctx, name)
	}
}

// settle grants a lock that somebody left free with a line to the first in it.
func (t *attendant) settle(ctx context.Context, name string) {
	awards, err := t.m.locks.Settle(ctx, name)
	if err != nil && !errors.Is(err, catalog.ErrNoMatch) {
		t.m.log.Debug().Err(err).Str("lock", catalog.Printable(name, 200)).Msg("settle")
	}
	t.room.deliver(awards)
}

// attend looks at all locks that somebody waits for: who stands before him, and do they live.
func (t *attendant) attend(ctx context.Context, by map[string][]*waiter, names []string) {
	sent := t.m.cfg.Clock.Now() // R2
	looks, err := t.m.locks.Attend(ctx, names)
	received := t.m.cfg.Clock.Now() // R1
	t.attended = received.Mono
	t.next = received.Mono + t.interval()
	t.room.looks.note(ctx, err)
	if err != nil {
		t.failed(by, err)
		t.next = received.Mono + t.m.pinger.Jitter(min(t.m.cfg.PollMax, t.interval()/2), 0.2)
		t.attended = t.next // newcomers wait for it as well
		return
	}
	t.asked = received.Mono
	for _, name := range names {
		look, there := looks[name]
		if !there { // removed by a hand: the waiters' places are gone
			t.expel(by[name])
			continue
		}
		t.consider(ctx, by[name], t.m.judge.Decide(name, look, sent, received))
	}
}

// failed tells all waiters of a failure that makes waiting hopeless. Others pass, and are logged.
func (t *attendant) failed(by map[string][]*waiter, err error) {
	for _, ws := range by {
		t.refuse(ws, err)
	}
}

// refuse tells waiters of a failure with which a new call would be refused as well.
func (t *attendant) refuse(ws []*waiter, err error) {
	if !hopeless(err) {
		return
	}
	for _, w := range ws {
		w.tell(acquiring(w.a.grant.Name, err))
	}
}

// hopeless reports whether waiting does not mend an error: only a person can.
func hopeless(err error) bool {
	var denied *catalog.PrivilegeError
	return errors.As(err, &denied) || errors.Is(err, ErrMalformed) || errors.Is(err, ErrLimit)
}

// expel sends waiters back whose place is gone; they enter again.
func (t *attendant) expel(ws []*waiter) {
	for _, w := range ws {
		e := w.held()
		e.Reason = "its place in the line was removed"
		w.tell(e)
	}
}

// consider draws the consequences of one look.
func (t *attendant) consider(ctx context.Context, ws []*waiter, s contend.Scene) {
	if err := s.Malformed(); err != nil {
		t.refuse(ws, err)
		return
	}
	last := -1
	var missing []*waiter
	for _, w := range ws {
		ts, limit := w.a.grant.TS, w.a.grant.Limit
		at := slices.IndexFunc(s.Suspects, func(p contend.Suspect) bool { return p.TS == ts })
		if at < 0 {
			missing = append(missing, w)
			continue
		}
		w.mu.Lock()
		w.looked, w.scene, w.place = true, &s, at-len(s.Holders())
		w.mu.Unlock()
		last = max(last, at)
		if other := s.OtherLimit(limit); other != nil && s.Suspects[at].Waits && !s.Silent(limit) {
			w.tell(acquiring(s.Name, other))
		}
	}
	t.room.deliver(s.Lock.AwardsOf(t.m.Process()))
	if len(missing) > 0 {
		t.expel(missing)
	}
	if s.Free() && len(s.Lock.Waiters) > 0 {
		t.settle(ctx, s.Name)
		return
	}
	if last > 0 {
		t.clear(ctx, ws, s, last)
	}
}

// clear takes the dead among the first n out of the way, and looks again when another may be.
func (t *attendant) clear(ctx context.Context, ws []*waiter, s contend.Scene, n int) {
	for _, one := range s.Suspects[:n] {
		switch {
		case one.Process == t.m.Process():
		case one.Dead():
			t.soon(0)
		default:
			t.soon(one.Decision.Remaining)
		}
	}
	_, grants, err := t.m.judge.EvictDead(ctx, s, n)
	t.room.deliver(grants)
	if err != nil && !errors.Is(err, catalog.ErrNoMatch) {
		t.m.log.Warn().Err(err).Str("lock", catalog.Printable(s.Name, 200)).Msg("evict")
		t.refuse(ws, err)
	}
}

// soon brings the next look at the locks forward. After a burial, or a failed one, the picture is
// another; not at once, so that a failure does not make a storm.
func (t *attendant) soon(in time.Duration) {
	now := t.m.cfg.Clock.Now().Mono
	t.next = min(t.next, now+max(in, t.m.cfg.Poll))
}
