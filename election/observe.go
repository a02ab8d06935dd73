package election

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/leading"
)

// A Candidate is a process in the queue of an election, or the leader of the election.
type Candidate struct {
	Process string // the process id
	// Metadata is the text of the option [Metadata]. It is empty for a process that uses the name as a
	// plain lock.
	Metadata string
	// Session identifies the queue entry of the candidate, and the term that follows.
	Session bson.ObjectID
	Since   time.Time // the beginning of its wait or term, by the server's clock; zero when unknown
}

// A Leader is the leader of an election at the time of one read.
type Leader struct {
	Candidate
	Fence  int64
	Nobody bool // there is no leader; the other fields are empty
}

// Leader reads the current leader. The leader may change before Leader returns. Leader sends one
// command, or three to the embedded server.
//
// Errors: [ErrMode]; the errors of [distlock.Inspector.Holder].
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	holder, _, err := e.read(ctx)
	if err != nil {
		return Leader{}, err
	}
	return leaderOf(holder), nil
}

// Candidates reads the queue of candidates, the next leader first. The queue has at most 100
// candidates. Candidates sends one command, or three to the embedded server.
//
// Errors: those of Leader.
func (e *Election) Candidates(ctx context.Context) ([]Candidate, error) {
	_, queue, err := e.read(ctx)
	if err != nil {
		return nil, err
	}
	candidates := make([]Candidate, 0, len(queue))
	for _, one := range queue {
		candidates = append(candidates, candidateOf(one))
	}
	return candidates, nil
}

// Observe yields the current leader, and then every change of the leader, until ctx ends. It yields
// a change within about Config.PollMax. If the leader changes several times between two reads,
// Observe yields only the last change. A gap between two fences shows that a term was missed. The
// last result is the error that ended Observe, for example the cause of ctx. After any other error,
// Observe continues and yields the leader again.
//
// All observers of a process share their reads. About every Config.PollMax the process sends one
// command for each hundred elections, or three to the embedded server.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := e.usable(ctx); err != nil {
			yield(Leader{}, err)
			return
		}
		var last Leader // differs from the result of every read
		for info, err := range e.manager.Internal(leading.Key{}).Watch(ctx, e.name) {
			if err == nil && info != nil && !fits(*info) {
				err = e.failed("observe", ErrMode)
			}
			now := Leader{}
			if err == nil {
				now = leaderOf(info)
			}
			if err == nil && now == last { // only a request to yield has changed the document
				continue
			}
			last = now
			if !yield(now, err) {
				return
			}
		}
	}
}

// observeFor calls fn with every new leader, until stop is called or ctx ends.
func (e *Election) observeFor(ctx context.Context, fn func(Leader)) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	go func() { // ends with ctx, after the current call of fn
		var last bson.ObjectID
		for leader, err := range e.Observe(ctx) {
			if err != nil || leader.Nobody || leader.Session == last || ctx.Err() != nil {
				continue
			}
			last = leader.Session
			e.callOne(fn, leader)
		}
	}()
	return stop
}

func (e *Election) callOne(fn func(Leader), leader Leader) {
	defer func() {
		if v := recover(); v != nil {
			e.log(panicked(v)).Msg("OnNewLeader panicked")
		}
	}()
	fn(leader)
}

// read returns the holder of the lock and its waiters. The holder of a free lock is nil.
func (e *Election) read(ctx context.Context) (*distlock.LockInfo, []distlock.LockInfo, error) {
	if err := e.usable(ctx); err != nil {
		return nil, nil, err
	}
	holders, queue, err := e.manager.Inspector().Holder(ctx, e.name)
	if err != nil {
		return nil, nil, err
	}
	var holder *distlock.LockInfo
	for _, one := range append(holders, queue...) {
		if (one.Held || one.Place > 0) && !fits(one) {
			return nil, nil, e.failed("read",
				fmt.Errorf("%w: %s by %s", ErrMode, one.Mode, quoted(one.Process)))
		}
		if one.Held {
			holder = &one
		}
	}
	return holder, queue, nil
}

// fits reports whether a holder or waiter uses the lock exclusively, as elections do.
func fits(one distlock.LockInfo) bool { return one.Mode == "exclusive" }

func leaderOf(holder *distlock.LockInfo) Leader {
	if holder == nil {
		return Leader{Nobody: true}
	}
	return Leader{Candidate: candidateOf(*holder), Fence: holder.Fence}
}

// CandidateOf returns the candidate or leader that info describes. elected reports whether that
// process takes part in an election. If the process uses a plain lock, or is the last holder of a
// free lock, elected is false and c has no metadata.
func CandidateOf(info distlock.LockInfo) (c Candidate, elected bool) {
	c = Candidate{Process: info.Process, Session: info.Session, Since: info.Since}
	head := info.Who[:max(0, strings.LastIndexByte(info.Who, ':'))] // a random text is last
	if elected = strings.HasSuffix(head, ":"+label) && (info.Held || info.Place > 0); elected {
		c.Metadata = info.Why
	}
	return c, elected
}

func candidateOf(one distlock.LockInfo) Candidate {
	c, _ := CandidateOf(one) // the reason of a plain lock is not metadata
	return c
}
