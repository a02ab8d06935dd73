package queue

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
	"mongodlm/internal/watch"
)

// A loop looks after all waiters of a process. There is one at most, and only while somebody waits
// or did a ping interval ago. What it sends does not depend on how many wait:
//
//   - a change stream brings what is granted to the process, where there are change streams. What
//     it is worth is measured, see stream.go. While it tells in time nobody asks, but when nothing
//     was heard for PollMax and a quarter of the time in which nothing has moved: to know that it
//     still does;
//   - where there is none, or while it lags, one read asks for it. Its pauses are a small part of
//     the time in which nothing has moved, a smaller one if somebody is near the front, so that
//     asking adds the same share to every wait, and of a turn once one is to be expected, see
//     approach; at least two round trips, so that they follow the server, and one for who is next;
//     at most PollMax;
//   - one read each ping interval, and a sixth of it after somebody came, or half of a short time
//     to wait, see Stands, shows who stands before them and how their pings are. It starts and
//     goes on with the watch of holders and waiters, and finds a grant that was not told.
type loop struct {
	q *Queue

	// interval is the time between two looks at the locks: the ping interval, and never so long that
	// a late look would break the watch. patience is how long a caller has waited when its lock is
	// looked at for the first time: most waits are over by then, and cost nothing but entering.
	interval, patience time.Duration

	asked    time.Duration // monotonic time of the last question for grants
	attended time.Duration // that of the last look at the locks, and when the next is due
	next     time.Duration
	idle     time.Duration // since when nobody waits; -1 while somebody does
	ask      bool          // ask at once: the stream opened, broke or lags
	stream   *following
	timer    clock.Timer // of sleep; nil before the first
}

// Bounds of the pauses between two questions, see loop.
const (
	roundTrips   = 2
	nearFront    = 64 // the pause is this part of the time in which nothing moved
	farFromFront = 16 // for those who have more than nearPlaces before them
	nearPlaces   = 16
	besideStream = 4   // beside a stream that tells in time; at least PollMax then
	pollsInPoll  = 100 // the shortest pause is Poll divided by it

	forEver = time.Duration(math.MaxInt64)
)

// lookAfter is the loop.
func (q *Queue) lookAfter() {
	ctx, cancel := clock.Until(q.Closed)
	defer cancel()
	now, interval := q.Clock.Now().Mono, min(q.Ping, q.MaxWatchGap/2)
	l := &loop{
		q: q, stream: follow(q), interval: interval, patience: max(q.Poll, interval/6),
		asked: now, attended: now, next: now + interval, idle: -1,
	}
	defer l.stream.end()
	for !clock.Over(q.Closed) {
		by, names := q.waiters()
		pause, look := l.due(by)
		switch {
		case len(names) == 0:
			if l.retire() {
				return
			}
			pause = max(l.idle+q.Ping-q.Clock.Now().Mono, time.Millisecond)
		case pause <= 0 && look:
			l.attend(ctx, by, names)
			continue
		case pause <= 0:
			l.askFor(ctx, by, names)
			continue
		}
		l.sleep(pause)
	}
}

// retire notes that nobody waits and reports whether that has been so for a ping interval.
func (l *loop) retire() bool {
	now := l.q.Clock.Now().Mono
	if l.idle < 0 {
		l.idle = now
	}
	if now-l.idle < l.q.Ping {
		return false
	}
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	for _, w := range l.q.inside {
		if w.stands {
			return false
		}
	}
	l.q.attends = false
	return true
}

func (l *loop) sleep(pause time.Duration) {
	if l.timer == nil {
		l.timer = l.q.Clock.NewTimer(pause)
	} else {
		l.timer.Reset(pause)
	}
	defer l.timer.Stop()
	select {
	case <-l.timer.C():
	case <-l.q.wake:
	case <-l.stream.changed:
		l.ask = true
	case <-l.q.Closed:
	}
}

// due returns how long nothing is to be done, zero or less when something is, and whether that is a
// look at the locks; else it is a question.
func (l *loop) due(by map[string][]*Waiter) (pause time.Duration, look bool) {
	now := l.q.Clock.Now().Mono
	looks := l.next
	if len(by) > 0 {
		l.idle = -1
	}
	near, first, soonest := false, forEver, expected{left: forEver}
	l.q.mu.Lock()
	for name, ws := range by {
		turn := l.q.turns[name]
		for _, w := range ws {
			if !w.looked {
				looks = min(looks, max(w.since, l.attended)+min(l.patience, w.half))
			}
			left := w.left(turn, now)
			near = near || w.place < nearPlaces || turn > 0 && left < nearPlaces*turn
			first = min(first, w.since)
			if left < soonest.left {
				soonest = expected{left, turn}
			}
		}
	}
	l.q.mu.Unlock()
	next := looks
	if len(by) > 0 {
		next = min(next, l.question(near, first, soonest))
	}
	if l.ask {
		next = now
	}
	return next - now, now >= looks
}

// question returns when the next question for grants is due, or something else has to be thought of
// the stream. first is when the first of those who wait came, and next the next turn.
func (l *loop) question(near bool, first time.Duration, next expected) time.Duration {
	now := l.q.Clock.Now().Mono
	l.q.mu.Lock()
	is := &l.stream.worth
	late, lag := is.overdue(now, l.q.bounds())
	trusted, heard, still, rtt := is.trusted, is.heard, now-l.q.moved, l.q.rtt
	l.q.mu.Unlock()
	if lag != nil {
		l.q.thinks(l.stream, lag)
	}
	if trusted {
		pause := l.q.Process.Jitter(max(l.q.PollMax, still/besideStream), 0.2)
		return min(late, max(l.asked, heard, first)+pause)
	}
	pause := still / farFromFront
	if near {
		pause = still / nearFront
	}
	least, behind := roundTrips*rtt, next.left-next.turn // how long others stand before it
	toward := behind / approach
	if next.turn > 0 {
		pause = min(pause, max(next.turn, -next.left)/whenDue)
		if behind <= 0 {
			least, toward = rtt, min(next.left/approach, still/unexpected)
		}
	}
	return l.asked + max(l.q.askPause(pause, least), min(toward, l.q.PollMax))
}

// askPause is a pause, at least so long and at most PollMax.
func (q *Queue) askPause(pause, least time.Duration) time.Duration {
	return q.Process.Jitter(min(max(pause, q.leastPause(least)), q.PollMax), 0.2)
}

// leastPause is the shortest pause between two questions, given what the round trips ask for.
func (q *Queue) leastPause(trips time.Duration) time.Duration {
	return max(trips, q.Poll/pollsInPoll, time.Millisecond)
}

// askFor asks which of the locks were granted to this process, which were left free, and where in
// their lines its waiters stand whose turns are near.
func (l *loop) askFor(ctx context.Context, by map[string][]*Waiter, names []string) {
	l.ask = false
	sent, process := l.q.Clock.Now().Mono, l.q.Process.Process()
	locks, err := l.q.Store.HeldOrFree(ctx, process, names, l.q.moving(by, sent))
	l.asked = l.q.Clock.Now().Mono
	if l.went(ctx, l.q.questions, err, slices.Collect(maps.Values(by))...); err != nil {
		return
	}
	for _, lock := range locks { // before heard: the first answer may be older than the stream
		l.q.Deliver(lock.GrantsOf(process))
		for _, w := range by[lock.Name] {
			w.standsIn(lock.Waiters, sent)
		}
	}
	l.heard(sent, l.asked-sent)
	for _, lock := range locks {
		if !lock.Held {
			l.grantNext(ctx, by[lock.Name], lock.Name)
		}
	}
}

// heard notes that all is known that was granted before a question or a look was sent, and how long
// a question took if it is not 0.
func (l *loop) heard(sent, took time.Duration) {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	l.stream.worth.heard = max(l.stream.worth.heard, sent)
	switch {
	case l.q.rtt == 0:
		l.q.rtt = took
	case took > 0:
		l.q.rtt += (took - l.q.rtt) / 4
	}
}

// grantNext grants a lock that somebody left free with a line to the first in it.
func (l *loop) grantNext(ctx context.Context, ws []*Waiter, name string) {
	_, grants, err := l.q.Store.Apply(ctx, transition.GrantNext{Name: name})
	l.stepped(ctx, ws, err)
	l.q.Deliver(grants)
}

// stepped notes how a step went that helps a line on. What others did meanwhile is no failure.
func (l *loop) stepped(ctx context.Context, ws []*Waiter, err error) {
	if errors.Is(err, catalog.ErrNoMatch) && !errors.Is(err, catalog.ErrUnknownOutcome) {
		err = nil
	}
	l.went(ctx, l.q.steps, err, ws)
}

// went notes how a command went. A failure that makes waiting hopeless its waiters are told; others
// pass, and are logged.
func (l *loop) went(ctx context.Context, kind *Episode, err error, waiters ...[]*Waiter) {
	if Hopeless(err) {
		for _, ws := range waiters {
			tell(ws, Fate{Err: err})
		}
		err = nil
	}
	kind.Note(ctx, err)
}

// Hopeless reports whether waiting does not mend an error: only a person can, and a new call would
// be refused as well.
func Hopeless(err error) bool {
	var denied *catalog.PrivilegeError
	return errors.As(err, &denied) || errors.Is(err, catalog.ErrMalformed) ||
		errors.Is(err, catalog.ErrPermitMismatch)
}

// attend looks at all locks that are waited for: at those who stand before a waiter, and whether
// they live.
func (l *loop) attend(ctx context.Context, by map[string][]*Waiter, names []string) {
	sent := l.q.Clock.Now() // R2
	looks, err := l.q.Store.Snapshots(ctx, names)
	received := l.q.Clock.Now() // R1
	l.attended = received.Mono
	l.next = received.Mono + l.interval
	if l.went(ctx, l.q.looks, err, slices.Collect(maps.Values(by))...); err != nil {
		l.next = received.Mono + l.q.Process.Jitter(min(l.q.PollMax, l.interval/2), 0.2)
		l.attended = l.next // newcomers wait for it as well
		return
	}
	l.asked = received.Mono
	scenes := make([]watch.Scene, 0, len(names))
	for _, name := range names {
		look, there := looks[name]
		if !there { // removed by a hand: the waiters' places are gone
			tell(by[name], Fate{Removed: true})
			continue
		}
		scenes = append(scenes, l.q.Judge.Decide(name, look, sent, received))
	}
	l.q.Judge.LeaveSights(ctx, scenes...)
	for _, s := range scenes {
		l.consider(ctx, by[s.Name], s)
	}
	l.heard(sent.Mono, 0)
}

// consider draws the consequences of one look.
func (l *loop) consider(ctx context.Context, ws []*Waiter, s watch.Scene) {
	if err := s.Malformed(); err != nil {
		tell(ws, Fate{Err: err})
		return
	}
	last := -1
	var missing []*Waiter
	for i, w := range ws {
		ts, limit := w.party.TS, w.party.Limit
		at := slices.IndexFunc(s.Judged, func(p watch.Judged) bool { return p.TS == ts })
		if at < 0 {
			missing = append(missing, w)
			continue
		}
		w.looked = true
		w.Scene.Store(&s)
		w.standsIn(s.Lock.Waiters, l.attended)
		last = max(last, at)
		if other := s.OtherLimit(limit); other != nil && s.Judged[at].Waits && !s.Silent(limit) {
			tell(ws[i:i+1], Fate{Err: other})
		}
	}
	l.q.Deliver(s.Lock.GrantsOf(l.q.Process.Process()))
	tell(missing, Fate{Removed: true}) // they enter again
	if last > 0 {
		passed, again := l.q.Judge.PassOver(ctx, s, last)
		if passed > 0 || again > 0 {
			l.soon(again)
		}
	}
	if s.Free() && len(s.Lock.Waiters) > 0 {
		l.grantNext(ctx, ws, s.Name)
		return
	}
	dead := false // among those before a waiter; another may be later
	for _, one := range s.Judged[:max(last, 0)] {
		own := one.Process == l.q.Process.Process()
		_, leased := s.Lock.LeaseOf(one.TS) // a lease may run out although its process lives
		switch {
		case one.Dead() && (one.Renewal != 0 || !own):
			dead = true
			l.soon(0)
		case !own || leased && !one.Waits:
			l.soon(one.Decision.Remaining)
		}
	}
	if dead {
		_, err := l.q.Judge.EvictDead(ctx, s, last)
		l.stepped(ctx, ws, err)
	}
}

// soon brings the next look at the locks forward. After an eviction, or a failed one, the picture
// is another; not at once, so that a failure does not make a storm.
func (l *loop) soon(in time.Duration) {
	now := l.q.Clock.Now().Mono
	l.next = min(l.next, now+max(in, l.q.Poll))
}

// From here on: how long a turn of a lock takes. Where grants are asked for, sixteen processes in
// one line would all ask as often as the first of it, and what they ask would slow its hand-over
// down: so a waiter behind others asks less while its turn is not to be expected.

// The pause between two questions is this part of the time until the waiter is expected to be the
// first of its line. Each question tells how many stand before it, so that it is noticed by the way
// that turns are shorter or longer than those before. For the first it is this part of the time
// until its turn, and at most that part of the time in which nothing has moved, since no question
// tells that its turn comes sooner.
//
// Once its turn is to be expected, the pause is at most that part of what one takes, or of the time
// for which this one is late: a lock that many wait for stands free for a small part of a turn, and
// not of the long time that they have waited for it.
const (
	approach   = 3
	unexpected = 8
	whenDue    = 8

	// longer is how many times as long as the last turn one counts at most: who waits then asks for a
	// while as if turns were short. quicker is how many times as quick the turns before a waiter's own
	// must have been, since it entered, that they count in place of those before.
	longer  = 2
	quicker = 4
)

// mostLines bounds of how many locks a question tells the line.
const mostLines = 16

// expected is a turn: how long it is until then, less than 0 when it is late, and how long one
// takes, 0 when that is not known.
type expected struct{ left, turn time.Duration }

// moving are the locks of which a question asks for the line: those whose turns are short beside
// PollMax and not late by more than it, the soonest mostLines of them.
func (q *Queue) moving(by map[string][]*Waiter, now time.Duration) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := map[string]time.Duration{}
	for name, ws := range by {
		turn, soonest := q.turns[name], forEver
		if turn == 0 || turn > approach*q.PollMax {
			continue
		}
		for _, w := range ws {
			if l := w.left(turn, now); w.place > 0 && l > -q.PollMax {
				soonest = min(soonest, l)
			}
		}
		if soonest < forEver {
			left[name] = soonest
		}
	}
	sooner := func(a, b string) int { return cmp.Compare(left[a], left[b]) }
	lines := slices.SortedFunc(maps.Keys(left), sooner)
	return lines[:min(len(lines), mostLines)]
}

// mostTurns bounds what is remembered of locks.
const mostTurns = 1000

// tookTurns learns from the grant of a waiter. A quicker turn counts at once, a longer one by and
// by: after one turn of minutes the next may be as quick as those before it. The caller holds mu.
func (q *Queue) tookTurns(w *Waiter, now time.Duration) {
	if !w.stands {
		return
	}
	name, turn := w.Name, (now-w.since)/time.Duration(w.behind+1)
	if last, known := q.turns[name]; known && turn > last {
		turn = min(last+(turn-last)/4, longer*last)
	}
	if len(q.turns) >= mostTurns {
		clear(q.turns)
	}
	q.turns[name] = turn
}

// left is how long it is until the turn of a waiter, if turns take as long as that; less than 0
// when it is late. When it has waited for twice as long as was to be expected when it entered, they
// do not: then it is late by all that it waits longer, wherever it stands.
func (w *Waiter) left(turn, now time.Duration) time.Duration {
	if late := now - w.since - time.Duration(w.behind+1)*turn; late > time.Duration(w.behind+1)*turn {
		return -late
	}
	if turns := w.behind - w.place; turns > 0 {
		if took := (w.seen - w.since) / time.Duration(turns); quicker*took < turn {
			turn = took
		}
	}
	return w.seen + time.Duration(w.place+1)*turn - now
}
