package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"mongodlm/claim"
	"mongodlm/cmd/internal/census"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
	"mongodlm/singleton"
)

func isMalformed(l census.Loop) bool { return l.Malformed != "" }

var loopFilters = []filter[census.Loop]{
	{"", "All", "", func(census.Loop) bool { return true }},
	{"failed", "Failing", "bad", census.Loop.Failed},
	{"stopped", "Stopped", "late", func(l census.Loop) bool { return l.Stopped != "" }},
	{"malformed", "Malformed", "bad", isMalformed},
}

type loopList struct {
	Figures []figure
	Rows    []census.Loop // at most maxLoops
	Total   int           // all loops
	Found   int
}

func (s *Server) showLoops(r *http.Request, _ state) content {
	return contentOf(s.loops.get(r.Context(), s, s.readLoops), func(all []census.Loop) any {
		l := loopList{Total: len(all)}
		l.Figures, l.Rows = filtered(r, all, loopFilters)
		l.Found = len(l.Rows)
		l.Rows = l.Rows[:min(len(l.Rows), maxLoops)]
		return l
	})
}

func roundTitle(r singleton.PastRun) string {
	text := fmt.Sprintf("%s, started %s by %s", r.State, r.Begun.UTC().Format("2006-01-02 15:04:05"),
		words.Shown(words.Short(r.Process), 200))
	if !r.Ended.IsZero() {
		text += fmt.Sprintf(", took %v", r.Took.Round(time.Millisecond))
	}
	if r.Error != "" {
		text += ": " + words.Shown(r.Error, 2_000)
	}
	return text
}

func (s *Server) readLoops(ctx context.Context) ([]census.Loop, error) {
	return census.Loops(ctx, s.cfg.Client.Database(s.cfg.Database))
}

const (
	keepLoops   = 2 * time.Second
	keepQueues  = 5 * time.Second
	keepMembers = 5 * time.Second
	keepPings   = 2 * time.Second
)

// Limits of the pages of processes, queues and loops.
const (
	maxProcesses = 500
	maxNamed     = 50 // locks of one process
	maxQueues    = 20
	maxLoops     = 500
)

// showElections shows the locks with candidates. Locks in trouble come first, then locks with more
// candidates.
func (s *Server) showElections(_ *http.Request, now *listing) any {
	found := slices.DeleteFunc(slices.Clone(now.Locks), func(k *census.Lock) bool {
		return !slices.ContainsFunc(slices.Concat(k.Holders, k.Queue),
			func(i distlock.LockInfo) bool { return words.Role(i) == "election" })
	})
	slices.SortStableFunc(found, func(a, b *census.Lock) int {
		return cmp.Or(b.Trouble()-a.Trouble(), len(b.Queue)-len(a.Queue))
	})
	return found
}

// A queueRow is a queue with the numbers of its rows, or with the error of the count.
type queueRow struct {
	*census.Queue
	claim.Counts
	Problem string
}

// A queueSummary counts the queues. It lists at most maxQueues of them.
type queueSummary struct {
	Rows  []queueRow
	Total int
}

// readQueues counts the rows of at most maxQueues queues. The queue with the most dead rows comes
// first.
func (s *Server) readQueues(ctx context.Context) (found queueSummary, err error) {
	now := s.locks.get(ctx, s, s.read)
	if now.at.IsZero() || now.problem != "" {
		return found, errors.New("the locks of the workers could not be read")
	}
	queues := now.value.Queues()
	found.Total = len(queues)
	for _, q := range queues[:min(len(queues), maxQueues)] {
		row := queueRow{Queue: q}
		admin, err := claim.NewAdmin(q.Collection(s.cfg.Client), q.Config)
		if err == nil {
			row.Counts, err = admin.Count(ctx)
		}
		if err != nil {
			row.Problem = s.problem(err)
		}
		found.Rows = append(found.Rows, row)
	}
	slices.SortStableFunc(found.Rows, func(a, b queueRow) int { return cmp.Compare(b.Dead, a.Dead) })
	return found, nil
}

func (s *Server) showQueues(r *http.Request, _ state) content {
	return contentOf(s.queues.get(r.Context(), s, s.readQueues), identity)
}

// A Member is a MongoDB server, with the offset of its clock from the clock of this machine.
type Member struct {
	Host, Kind       string
	Ahead, RoundTrip time.Duration
	Problem          string
}

// Skew formats the offset between the clocks of the server and of this machine, with its
// uncertainty.
func (m Member) Skew() string {
	side := "ahead"
	if m.Ahead < 0 {
		side = "behind"
	}
	return fmt.Sprintf("%v %s, give or take %v", m.Ahead.Abs().Round(time.Millisecond), side,
		(m.RoundTrip / 2).Round(100*time.Microsecond))
}

// Trip returns the duration of the round trip to the server, rounded for display.
func (m Member) Trip() time.Duration { return m.RoundTrip.Round(10 * time.Microsecond) }

type serverPage struct {
	Members  content
	Took     time.Duration
	Rounds   int
	Viewers  int
	Locks    content
	Interval time.Duration
}

// showServer shows the members, and figures about the page itself. The figures are known even if
// the server does not answer.
func (s *Server) showServer(r *http.Request, now state) content {
	members := s.members.get(r.Context(), s, s.readMembers)
	return content{Known: true, Data: serverPage{Members: contentOf(members, identity),
		Took: now.took, Rounds: now.seq, Viewers: len(s.streams), Interval: s.cfg.Interval,
		Locks: contentOf(now, func(l *listing) any { return len(l.Locks) })}}
}

// readMembers reads the clock of each member. If the members are unknown, it reads the clock of the
// server that accepts writes.
func (s *Server) readMembers(ctx context.Context) ([]Member, error) {
	if s.cfg.Members != nil {
		if all, err := s.cfg.Members(ctx); err != nil || len(all) > 0 {
			return all, err
		}
	}
	sent := s.clock.Now()
	now, err := census.Now(ctx, s.cfg.Client)
	if err != nil {
		return nil, err
	}
	trip := s.clock.Now().Mono - sent.Mono
	return []Member{{Host: s.cfg.Hosts, Kind: "server", RoundTrip: trip,
		Ahead: now.Sub(sent.Wall.Add(trip / 2))}}, nil
}
