package waitqueue

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
)

// A search looks for deadlocks of those of a process who wait while they hold something. There is
// one at most, and only while there are such; nobody waits for it.
//
// Each of them is searched for after a second, and then after pauses that double up to the ping
// interval, as long as it is not stuck. A caller that closes a circle is searched for a second
// later by its own process. So only those have to break it whose process searches soon, see
// candidates.
//
// Those who wait outside of the documents other processes know by a note in the ping document, see
// [catalog.Note]. It is written when one of them has waited for half a second, and anew each
// second, so that it is never older, and removed when nobody waits so.
type search struct {
	q       *Queue
	last    time.Duration // monotonic time of the last one; before the first a long time ago
	number  int64         // of the last note
	noted   string        // the process whose ping document has it; empty when none has
	removes bool          // the last one removes what was written
	sent    time.Duration // monotonic time of it
	wrote   chan error    // how the one went that is under way; nil when none is
	first   *lines        // a reading that has to be confirmed by another; nil when there is none
	whose   []*Waiter     // who is to be told then
	again   time.Duration // monotonic time of the second reading
	until   time.Duration // and of the last time that it is tried
}

// Times of a search.
const (
	// deadlockAfter is how long a waiter waits before it looks for a circle; PostgreSQL's
	// deadlock_timeout is the same.
	deadlockAfter = time.Second
	// abroadAfter is the longest pause for one who holds what another Manager has acquired. Such a
	// search reads all lines.
	abroadAfter = 3 * deadlockAfter
	searchGap   = deadlockAfter / 2 // between two searches of a process
	noteAfter   = deadlockAfter / 2 // so that it is there when another searches
	noteEvery   = time.Second       // from note to note
	noteLate    = 200 * time.Millisecond
	// confirmFor is how long a second reading is tried beside the first one, which is as good as it
	// was: a session that stands in both stood there all the while.
	confirmFor = 10 * time.Second
	// searchCost is by how much longer the pauses are for each who waits, so that searches once a
	// second and more cost less than a hundredth of a core: one of 10,000 takes 150 ms.
	searchCost = 2 * time.Millisecond
	// joins is the part of its pause after which a waiter takes part in a search that is due for
	// another.
	joins = 2
)

// A schedule says when a waiting caller is searched for.
type schedule struct {
	last  time.Duration // monotonic time of the last search
	pause time.Duration // until the next one; zero before the first
	alone bool          // the last note had no room for it: of its circles only this process knows
}

// due is the monotonic time of the next search.
func (s schedule) due(since time.Duration) time.Duration {
	if s.pause == 0 {
		return since + deadlockAfter
	}
	return s.last + s.pause
}

// after notes a search, in which it turned out to be stuck or not.
func (s *schedule) after(now time.Duration, stuck bool, limit time.Duration) {
	pause := deadlockAfter
	if !stuck {
		pause = min(max(deadlockAfter, 2*s.pause), max(limit, deadlockAfter))
	}
	s.last, s.pause = now, pause
}

// pauseOf is the longest pause between two searches for one of all who are searched for. Nobody
// else searches for a circle of one who is alone, nor of one who holds what another Manager has
// acquired.
func (s *search) pauseOf(n *Waiter, all int) time.Duration {
	cost := time.Duration(all) * searchCost
	switch {
	case n.search.alone:
		return min(deadlockAfter+cost, s.q.Ping)
	case slices.ContainsFunc(n.party.Holds, s.q.elsewhere):
		return min(abroadAfter+cost, s.q.Ping)
	}
	return s.q.Ping
}

// nested are those of this process who wait while they hold something. The caller holds mu.
func (q *Queue) nested() []*Waiter {
	return slices.DeleteFunc(q.all(), func(w *Waiter) bool { return len(w.party.Holds) == 0 })
}

// seek has somebody searched for who waits while it holds something. The caller holds mu.
func (q *Queue) seek() {
	if !q.seeks && !clock.Over(q.Closed) {
		q.seeks = true
		s := &search{q: q, last: q.Clock.Now().Mono - searchGap, sent: q.Clock.Now().Mono - noteEvery}
		q.Go(s.run) // ends when nobody waits so, or with Closed
	}
	select {
	case q.rouse <- struct{}{}:
	default: // it is awake
	}
}

func (s *search) run() {
	ctx, cancel := clock.Until(s.q.Closed)
	defer func() {
		if cancel(); s.wrote != nil {
			<-s.wrote
		}
	}()
	for !clock.Over(s.q.Closed) {
		select {
		case err := <-s.wrote:
			s.written(ctx, err)
		default:
		}
		s.q.mu.Lock()
		all := s.q.nested()
		if len(all) == 0 && s.noted == "" && s.wrote == nil {
			s.q.seeks = false
			s.q.mu.Unlock()
			return
		}
		s.q.mu.Unlock()
		if pause := s.due(all); pause > 0 {
			s.sleep(pause)
			continue
		}
		s.work(ctx, all)
	}
}

func (s *search) sleep(pause time.Duration) {
	timer := s.q.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C():
	case err := <-s.wrote:
		s.wrote <- err // it has room
	case <-s.q.rouse:
	case <-s.q.Closed:
	}
}

// due returns how long nothing is to be done; zero or less when something is.
func (s *search) due(all []*Waiter) time.Duration {
	now := s.q.Clock.Now().Mono
	next, free := now+time.Hour, s.last+searchGap
	for _, n := range all {
		next = min(next, max(n.search.due(n.since), free))
	}
	if s.first != nil {
		next = s.again
	}
	return min(next, s.noteDue(all)) - now
}

// noteDue is the monotonic time of the next note.
func (s *search) noteDue(all []*Waiter) time.Duration {
	due, outside := s.sent+time.Hour, false
	if s.wrote != nil {
		return due
	}
	for _, n := range all {
		if n.Line != nil {
			due, outside = min(due, n.since+noteAfter), true
		}
	}
	if !outside && s.noted != "" {
		due = s.sent
	}
	return max(due, s.sent+noteEvery)
}

// work does what is due.
func (s *search) work(ctx context.Context, all []*Waiter) {
	now := s.q.Clock.Now().Mono
	switch {
	case now >= s.noteDue(all):
		s.note(ctx, all)
	case s.first == nil:
		s.look(ctx, all)
	case now >= s.again:
		s.confirm(ctx)
	}
}

// note writes who waits outside into the ping document, or removes what was written. The search
// goes on meanwhile.
func (s *search) note(ctx context.Context, all []*Waiter) {
	s.sent = s.q.Clock.Now().Mono
	s.number++
	n := catalog.Note{Number: s.number, Outsiders: s.outsiders(all)}
	process, wrote := s.q.Process.Process(), make(chan error, 1)
	s.removes = len(n.Outsiders) == 0
	if s.wrote = wrote; !s.removes {
		s.noted = process
	} else if s.noted != process {
		s.noted = "" // it was left in the document of a process id that is given up
	}
	put := transition.PutNote{Process: process, Note: n}
	go func() { wrote <- s.q.Store.ApplyPing(ctx, put) }() // ends with ctx; run waits for it
}

// written notes how a note went.
func (s *search) written(ctx context.Context, err error) {
	s.wrote = nil
	nowhere := errors.Is(err, catalog.ErrNoMatch)
	if s.removes && (err == nil || nowhere) {
		s.noted = ""
	}
	if nowhere && !errors.Is(err, catalog.ErrUnknownOutcome) {
		err = nil // there is no ping: the pinger tells
	}
	s.q.notes.Note(ctx, err)
}

// outsiders are those who wait outside, who have waited for longest first. For whom the note has no
// room is alone.
func (s *search) outsiders(all []*Waiter) (list []catalog.Outsider) {
	slices.SortFunc(all, func(a, b *Waiter) int {
		return cmp.Or(cmp.Compare(a.since, b.since), bytes.Compare(a.party.TS[:], b.party.TS[:]))
	})
	for _, one := range all {
		if one.Line != nil {
			list = append(list, catalog.Outsider{Lock: one.Name, Participant: one.party})
		}
	}
	_, left := catalog.Noted(list)
	alone := map[bson.ObjectID]bool{}
	for _, o := range left {
		alone[o.TS] = true
	}
	for _, one := range all {
		one.search.alone = alone[one.party.TS]
	}
	var cut error
	if len(left) > 0 {
		cut = fmt.Errorf("%d of %d are not noted: of a deadlock of two such in different processes "+
			"nobody is told", len(left), len(list))
	}
	s.q.cuts.Note(context.Background(), cut)
	return list
}

// look searches for those for whom it is due, and those for whom it will be. Whoever has to break a
// circle must do so in a second reading, too: a reading of many documents is not of one instant,
// and what stands in both stood there at the instant between them. Is somebody in it whom only
// another's note tells of, the second one comes when that may have been written twice again, and is
// repeated until it has been.
func (s *search) look(ctx context.Context, all []*Waiter) {
	now := s.q.Clock.Now().Mono
	s.last = now
	var due []*Waiter
	for _, n := range all {
		at := n.search.due(n.since)
		if at <= now || n.search.pause > 0 && at-n.search.pause/joins <= now {
			due = append(due, n)
		}
	}
	seen, err := s.read(ctx, due, nil)
	s.q.searches.Note(ctx, err)
	if err != nil {
		s.last = now + deadlockAfter
		return
	}
	seen.solve()
	noted := false
	for _, n := range seen.nodes {
		noted = noted || n.stuck && n.number > 0
	}
	for _, n := range due {
		at := seen.waiters[n.party.TS]
		n.search.after(now, at != nil && at.stuck, s.pauseOf(n, len(all)))
	}
	for _, n := range all {
		if at := seen.waiters[n.party.TS]; at != nil && at.gaveUp {
			s.whose = append(s.whose, n)
		}
	}
	if len(s.whose) == 0 {
		return
	}
	s.first, s.again, s.until = seen, now, now+confirmFor
	if noted {
		s.again = now + noteEvery + noteLate
		return
	}
	s.confirm(ctx)
}

// confirm reads again and tells those who have to break a circle still. Where the second reading
// fails, or comes too early for the notes of those in the circle, the first one is kept for
// another.
func (s *search) confirm(ctx context.Context) {
	now := s.q.Clock.Now().Mono
	seen, err := s.read(ctx, s.whose, s.first)
	s.q.searches.Note(ctx, err)
	early := err != nil
	if err == nil {
		seen.solve()
		early = seen.early
		s.whose = slices.DeleteFunc(s.whose, func(n *Waiter) bool {
			at := seen.waiters[n.party.TS]
			told := at != nil && at.gaveUp
			if told {
				tell([]*Waiter{n}, Fate{Circle: at.chain()})
			}
			return told
		})
	}
	s.again = now + searchGap
	if !early || len(s.whose) == 0 || s.again > s.until {
		s.first, s.whose = nil, nil
	}
}

// read reads what some wait for, with those who stand outside of the lines, as a graph. before is
// an earlier reading: a session that does not stand in it is in nobody's way. The notes go on
// meanwhile: on a slow server others wait for them longer than for the reading.
func (s *search) read(ctx context.Context, from []*Waiter, before *lines) (*lines, error) {
	r, all := s.q.reading()
	done := make(chan error, 1)
	go func() { done <- r.collect(ctx, from, before) }() // ends with its commands; waited for here
	for {
		if now := s.q.Clock.Now().Mono; now >= s.noteDue(all) {
			s.q.mu.Lock()
			waiting := s.q.nested()
			s.q.mu.Unlock()
			s.note(ctx, waiting)
		}
		timer := s.q.Clock.NewTimer(s.noteDue(all) - s.q.Clock.Now().Mono)
		select {
		case err := <-done:
			timer.Stop()
			if err != nil {
				return nil, err
			}
			return r.graph(all, before), nil
		case err := <-s.wrote:
			s.written(ctx, err)
		case <-timer.C():
		}
		timer.Stop()
	}
}
