package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// following is one change stream, kept open by a goroutine of its own.
type following struct {
	changed chan struct{} // the stream opened, broke or lags: ask what happened meanwhile
	cancel  context.CancelFunc
	done    chan struct{}

	worth worth // the queue's mu guards it
	brief bool  // the last one broke within PollMax; its goroutine alone has it
}

// follow keeps a stream of notices open until end, and makes it the queue's. Where there are none
// it does nothing.
func follow(q *Queue) *following {
	f := &following{changed: make(chan struct{}, 1), done: make(chan struct{})}
	q.mu.Lock()
	q.stream = f
	q.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	if !q.Process.Server().ChangeStreams {
		close(f.done)
		return f
	}
	go func() { // ends with end, which waits for it
		defer close(f.done)
		for ctx.Err() == nil {
			err := f.once(ctx, q)
			var denied *catalog.PrivilegeError
			switch {
			case errors.Is(err, catalog.ErrNoGrantStream):
				return
			case errors.As(err, &denied): // asking again would only fill the server's log
				q.Log.Warn().Err(err).Msg("no stream of grants; waiters ask for them")
				return
			}
			q.Log.Debug().Err(err).Msg("stream of grants")
			clock.Sleep(q.Clock, q.Process.Jitter(q.Poll, 0.5), ctx.Done())
		}
	}()
	return f
}

// once opens a stream and follows it until it breaks or the process takes another id.
func (f *following) once(ctx context.Context, q *Queue) error {
	term := q.Process.Term()
	if term == nil {
		return errors.New("no heartbeat")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with once
		select {
		case <-term.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	stream, err := q.Store.GrantStream(ctx, term.Process())
	if err != nil {
		return err
	}
	defer stream.Close(context.WithoutCancel(ctx))
	// One behind a mongos has yet to show that it tells in time, and so has one after another that
	// was late, or broke before anybody asked whether it was: what is found by the first question
	// may be older than the stream.
	opened := q.Clock.Now().Mono
	f.set(q, worth{
		open: true, trusted: q.Process.Server().Kind != catalog.Mongos && !q.lags.Lasts() && !f.brief,
		opened: opened, begun: opened, untold: map[bson.ObjectID]found{},
	})
	defer func() {
		f.brief = q.Clock.Now().Mono-opened <= q.PollMax
		f.set(q, worth{})
	}()
	for {
		grants, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		for _, g := range grants {
			q.deliver(g, f)
		}
	}
}

// set begins or ends a stream.
func (f *following) set(q *Queue, is worth) {
	q.mu.Lock()
	f.worth = is
	q.mu.Unlock()
	f.askAtOnce()
}

func (f *following) askAtOnce() {
	select {
	case f.changed <- struct{}{}:
	default: // it will be asked
	}
}

func (f *following) end() {
	f.cancel()
	<-f.done
}

// From here on: what a stream of grants is worth. Behind a mongos it tells nothing before every
// shard has advanced, and an idle shard does so every ten seconds; on a replica set it may wait for
// a slow member. So it is measured: a grant that becomes known by other means (a question, a look,
// the reply to a step of this process) is compared with the time at which the stream tells it. Who
// waits asks, as long as the stream is not trusted.

// worth is what one open stream has shown. The queue's mu guards it.
type worth struct {
	open    bool
	trusted bool          // it tells in time
	opened  time.Duration // monotonic; what was granted before is not told
	heard   time.Duration // all that was granted before is known
	untold  map[bson.ObjectID]found

	// The trial of a stream that is not trusted: since when, and how many grants it told in time
	// and slowly.
	begun        time.Duration
	prompt, slow int
}

// found is a grant that became known by other means than the stream, and when.
type found struct {
	name string
	at   time.Duration
}

// A stream is trusted after a trial of PollMax and of so many grants, none of which was late, and
// at most one of so many was told later than the next question would have told it. So one that was
// late once, and is behind by a little more than the shortest pause ever after, is asked beside
// where turns are short: a question tells some ms before it does, at each hand-over. Where turns
// are long the pauses are, and it is as good as asking.
const (
	trialGrants = 3
	trialShare  = 8
)

// bounds say what is in time, and how long a trial takes.
type bounds struct{ prompt, late, trial time.Duration }

// bounds follow the server's round trip. A stream that tells within the two shortest pauses between
// questions is as good as asking. The caller holds mu.
func (q *Queue) bounds() bounds {
	prompt := 2 * q.leastPause(roundTrips*q.rtt)
	return bounds{prompt: prompt, trial: q.PollMax, late: max(prompt, q.Poll/5, 50*time.Millisecond)}
}

// tell notes a grant that the stream told, as the first to do so if it is news. Streams tell in
// order, so all that was granted before the waiter came is known. It reports whether that has
// changed what is thought of the stream: with an error that it lags, without one that it is trusted
// again.
func (s *worth) tell(ts bson.ObjectID, news bool, since, now time.Duration, b bounds) (
	changed bool, lag error,
) {
	s.heard = max(s.heard, since)
	f, known := s.untold[ts]
	delete(s.untold, ts)
	switch after := now - f.at; {
	case !news && !known: // told before, or found late
	case news || after <= b.prompt:
		s.prompt++
	case after <= b.late:
		s.slow++
	default:
		return true, s.lags(f, now)
	}
	if s.trusted || now-s.begun < b.trial || s.prompt+s.slow < trialGrants {
		return false, nil
	}
	s.trusted = s.slow*trialShare <= s.prompt
	s.begun, s.prompt, s.slow = now, 0, 0
	return s.trusted, nil
}

// overdue returns when the next of the grants that the stream has yet to tell is late, and an error
// if one is.
func (s *worth) overdue(now time.Duration, b bounds) (next time.Duration, lag error) {
	next = forEver
	for ts, f := range s.untold {
		if now-f.at > b.late {
			delete(s.untold, ts)
			lag = s.lags(f, now)
			continue
		}
		next = min(next, f.at+b.late+1)
	}
	return next, lag
}

// lags ends the trust in a stream, and begins its trial anew.
func (s *worth) lags(f found, now time.Duration) error {
	s.trusted, s.begun, s.prompt, s.slow = false, now, 0, 0
	return fmt.Errorf("it had not told a grant of %q %v after it was found; who waits asks as well",
		catalog.Printable(f.name, 200), now-f.at)
}
