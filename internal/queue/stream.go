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

// A stream is the change stream of a loop. A goroutine opens the change stream again after a
// failure.
type stream struct {
	changed chan struct{} // one element when the stream opened, broke or lags; the loop then polls
	cancel  context.CancelFunc
	done    chan struct{}

	quality quality // guarded by the queue's mu
	brief   bool    // the last change stream broke within PollMax; used only by the goroutine
}

// openStream starts the goroutine that opens a change stream for the queue. The goroutine runs
// until the stream is closed. If the server has no change streams, the returned stream delivers
// nothing.
func openStream(q *Queue) *stream {
	s := &stream{changed: make(chan struct{}, 1), done: make(chan struct{})}
	q.mu.Lock()
	q.stream = s
	q.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	if !q.Pinger.Server().ChangeStreams {
		close(s.done)
		return s
	}
	go func() { // ends with close, which waits for it
		defer close(s.done)
		for ctx.Err() == nil {
			err := s.receive(ctx, q)
			var denied *catalog.PrivilegeError
			switch {
			case errors.Is(err, catalog.ErrNoGrantStream):
				return
			case errors.As(err, &denied): // another try would only fill the server's log
				q.Log.Warn().Err(err).Msg("no grant stream; waiters poll")
				return
			}
			q.Log.Debug().Err(err).Msg("grant stream ended")
			clock.Sleep(q.Clock, q.Pinger.Jitter(q.Poll, 0.5), ctx.Done())
		}
	}()
	return s
}

// receive opens a change stream, and delivers its grants until the change stream breaks or the term
// of the process ends, see pinger.Term.
func (s *stream) receive(ctx context.Context, q *Queue) error {
	term := q.Pinger.Term()
	if term == nil {
		return errors.New("no heartbeat")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with receive
		select {
		case <-term.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	grants, err := q.Store.GrantStream(ctx, term.Process())
	if err != nil {
		return err
	}
	defer grants.Close(context.WithoutCancel(ctx))
	// A new stream is trusted, except in three cases: the server is a mongos, the previous stream was
	// late, or the previous stream broke before a poll could test it. In these cases the stream must
	// first deliver in time.
	opened := q.Clock.Now().Mono
	s.set(q, quality{
		open: true, trusted: q.Pinger.Server().Kind != catalog.Mongos && !q.lags.Failing() && !s.brief,
		opened: opened, begun: opened, undelivered: map[bson.ObjectID]polled{},
	})
	defer func() {
		s.brief = q.Clock.Now().Mono-opened <= q.PollMax
		s.set(q, quality{})
	}()
	for {
		next, err := grants.Next(ctx)
		if err != nil {
			return err
		}
		for _, g := range next {
			q.deliver(g, s)
		}
	}
}

func (s *stream) set(q *Queue, is quality) {
	q.mu.Lock()
	s.quality = is
	q.mu.Unlock()
	s.signal()
}

// signal makes the loop poll immediately.
func (s *stream) signal() {
	select {
	case s.changed <- struct{}{}:
	default: // the loop has yet to handle the last signal
	}
}

func (s *stream) close() {
	s.cancel()
	<-s.done
}

// quality records how quickly one change stream delivers. Behind a mongos, a stream delivers a
// grant only after every shard has advanced, and an idle shard advances every ten seconds. On a
// replica set, a stream may wait for a slow member.
//
// So the delay of the stream is measured. If this process receives a grant by a poll, a read or the
// reply to a command, the stream must soon deliver the grant too. While the stream is not trusted,
// the loop polls. The queue's mu guards all fields.
type quality struct {
	open        bool
	trusted     bool                     // the stream delivers in time
	opened      time.Duration            // monotonic; earlier grants are not delivered
	complete    time.Duration            // monotonic; all earlier grants are known
	undelivered map[bson.ObjectID]polled // known grants that the stream has yet to deliver

	// The trial of a stream that is not trusted: its start, and the numbers of its prompt and slow
	// deliveries.
	begun        time.Duration
	prompt, slow int
}

// polled is a grant that this process has received, but not by the stream.
type polled struct {
	name string
	at   time.Duration // monotonic
}

// A stream becomes trusted after a trial. The trial lasts at least PollMax and includes at least
// trialGrants deliveries. A late delivery restarts the trial. To pass the trial, the stream must
// make trialShare prompt deliveries for each slow one. A stream that is often slow is not trusted,
// because polls are quicker.
const (
	trialGrants = 3
	trialShare  = 8
)

// bounds holds the limits for the delay of a delivery, and the length of a trial. A delivery with a
// delay of at most prompt counts as prompt, with a delay of at most late as slow, and otherwise as
// late.
type bounds struct{ prompt, late, trial time.Duration }

// bounds computes the limits from the present round trip. The limit prompt is twice the shortest
// pause between two polls. The caller holds mu.
func (q *Queue) bounds() bounds {
	prompt := 2 * q.minPause(roundTrips*q.rtt)
	return bounds{prompt: prompt, trial: q.PollMax, late: max(prompt, q.Poll/5, 50*time.Millisecond)}
}

// deliver records that the stream delivered the grant of session ts. If first is set, the grant was
// unknown before. The waiter of the grant was queued at the time since. A stream delivers in order,
// so all grants before that time are known.
//
// If the stream has passed a trial, or the delivery was late, deliver returns true. The error
// describes the delay of a late delivery.
func (s *quality) deliver(ts bson.ObjectID, first bool, since, now time.Duration, b bounds) (
	changed bool, lag error,
) {
	s.complete = max(s.complete, since)
	p, known := s.undelivered[ts]
	delete(s.undelivered, ts)
	switch after := now - p.at; {
	case !first && !known: // delivered before, or recorded as late
	case first || after <= b.prompt:
		s.prompt++
	case after <= b.late:
		s.slow++
	default:
		return true, s.distrust(p, now)
	}
	if s.trusted || now-s.begun < b.trial || s.prompt+s.slow < trialGrants {
		return false, nil
	}
	s.trusted = s.slow*trialShare <= s.prompt
	s.begun, s.prompt, s.slow = now, 0, 0
	return s.trusted, nil
}

// overdue returns the time at which the next undelivered grant will be late. If a grant is late
// already, overdue ends the trust in the stream and returns the reason.
func (s *quality) overdue(now time.Duration, b bounds) (next time.Duration, lag error) {
	next = forever
	for ts, p := range s.undelivered {
		if now-p.at > b.late {
			delete(s.undelivered, ts)
			lag = s.distrust(p, now)
			continue
		}
		next = min(next, p.at+b.late+1)
	}
	return next, lag
}

// distrust ends the trust in a stream, begins a new trial, and returns the reason.
func (s *quality) distrust(p polled, now time.Duration) error {
	s.trusted, s.begun, s.prompt, s.slow = false, now, 0, 0
	return fmt.Errorf("a grant of %q was not delivered within %v of the poll that returned it; "+
		"waiters poll",
		catalog.Printable(p.name, 200), now-p.at)
}
