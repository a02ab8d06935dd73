package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"mongodlm/claim"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

// How long what is asked for only where somebody looks at it is kept.
const (
	keepLoops   = 2 * time.Second
	keepQueues  = 5 * time.Second
	keepMembers = 5 * time.Second
	keepPings   = 2 * time.Second
)

// What the other pages show at most.
const (
	maxProcesses = 500
	maxHeldShown = 50 // locks of one process
	maxQueues    = 20
	maxLoops     = 500
)

// errNoClient says why a page has nothing to show.
var errNoClient = errors.New("this store has none: it is no MongoDB")

// electionLabel marks those who stand in elections.
const electionLabel = "election"

// An electionRow is an election: a lock for which candidates stand.
type electionRow struct {
	*lock
	Leader *distlock.LockInfo // nil when nobody leads
}

func (s *Server) showElections(_ *http.Request, now *listing) any {
	var rows []electionRow
	for _, k := range now.locks {
		stands := func(i distlock.LockInfo) bool { return words.Role(i) == electionLabel }
		if !slices.ContainsFunc(k.Holders, stands) && !slices.ContainsFunc(k.Line, stands) {
			continue
		}
		s.palette.ofLock(k)
		row := electionRow{lock: k}
		if k.Held() {
			row.Leader = &k.Holders[0]
		}
		rows = append(rows, row)
	}
	return rows
}

// A queueRow is a queue of claims, found by the locks of its workers.
type queueRow struct {
	Namespace, Queue string
	Workers          int
	claim.Counts
	Problem string
	due     string // of its Config
}

// readQueues counts the rows of every queue whose workers have left a lock:
// claim:DATABASE.COLLECTION:QUEUE:SLOT.
func (s *Server) readQueues(ctx context.Context) ([]queueRow, error) {
	if s.cfg.Client == nil {
		return nil, errNoClient
	}
	now, _ := s.poller.now()
	if now.at.IsZero() || now.problem != "" {
		return nil, errors.New("the locks of the workers could not be read")
	}
	var rows []queueRow
	for _, k := range now.value.locks {
		parts := strings.Split(k.Name, ":")
		if len(parts) < 4 || parts[0] != "claim" {
			continue
		}
		namespace, queue := parts[1], strings.Join(parts[2:len(parts)-1], ":")
		at := slices.IndexFunc(rows,
			func(q queueRow) bool { return q.Namespace == namespace && q.Queue == queue })
		if at < 0 {
			if len(rows) == maxQueues {
				break
			}
			at = len(rows)
			rows = append(rows, queueRow{Namespace: namespace, Queue: queue})
		}
		rows[at].due = cmp.Or(rows[at].due, claim.ConfigOf(k.Holders[0].Why).Due)
		if last := parts[len(parts)-1]; k.Held() && last != "rescue" && last != "refused" {
			rows[at].Workers++
		}
	}
	for i := range rows {
		database, collection, ok := strings.Cut(rows[i].Namespace, ".")
		if !ok {
			continue
		}
		var err error
		rows[i].Counts, err = claim.Count(ctx, s.cfg.Client.Database(database).Collection(collection),
			claim.Config{Due: rows[i].due})
		if err != nil {
			rows[i].Problem = s.problem(err)
		}
	}
	return rows, nil
}

// showQueues puts queues with dead rows first.
func showQueues(_ *http.Request, rows []queueRow) any {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b queueRow) int { return cmp.Compare(b.Dead, a.Dead) })
	return rows
}

// A Member is one server, and its clock beside this machine's.
type Member struct {
	Host, Kind, Version string
	Ahead, RoundTrip    time.Duration
	Problem             string
}

// Skew words how far the clock is from this machine's.
func (m Member) Skew() string {
	side := "ahead"
	if m.Ahead < 0 {
		side = "behind"
	}
	return fmt.Sprintf("%v %s, give or take %v", m.Ahead.Abs().Round(time.Millisecond), side,
		(m.RoundTrip / 2).Round(100*time.Microsecond))
}

// Trip is the round trip as it is shown.
func (m Member) Trip() time.Duration { return m.RoundTrip.Round(10 * time.Microsecond) }

// A serverPage is the page of the server.
type serverPage struct {
	Members  content
	Took     time.Duration
	Rounds   int
	Lookers  int
	Locks    content
	Interval time.Duration
}

// showServer tells of the page itself, too, which is known without a server.
func (s *Server) showServer(r *http.Request, now *state) content {
	return content{Known: true, Data: serverPage{Members: contentOf(s.members.get(r.Context()),
		itself), Took: now.took, Rounds: now.seq, Lookers: len(s.streams), Interval: s.cfg.Interval,
		Locks: contentOf(now.reading, func(l *listing) any { return len(l.locks) })}}
}

// hello is what a server says of itself.
type hello struct {
	LocalTime time.Time `bson:"localTime"`
	Me        string    `bson:"me"`
	SetName   string    `bson:"setName"`
	Writable  bool      `bson:"ismaster"`
	Message   string    `bson:"msg"`
}

// readMembers asks each member for its clock, or the server that answers to writes.
func (s *Server) readMembers(ctx context.Context) ([]Member, error) {
	if s.cfg.Client == nil {
		return nil, errNoClient
	}
	if s.cfg.Members != nil {
		if all, err := s.cfg.Members(ctx); err != nil || len(all) > 0 {
			return all, err
		}
	}
	sent := s.clock.Now()
	var h hello
	// hello is of 4.4.2
	err := s.cfg.Client.Database("admin").RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}},
		options.RunCmd().SetReadPreference(readpref.Primary())).Decode(&h)
	if err != nil {
		return nil, err
	}
	m := Member{Host: cmp.Or(h.Me, s.cfg.Hosts), Kind: kindOf(h),
		RoundTrip: s.clock.Now().Mono - sent.Mono}
	m.Ahead = h.LocalTime.Sub(sent.Wall.Add(m.RoundTrip / 2))
	return []Member{m}, nil
}

func kindOf(h hello) string {
	switch {
	case h.Message == "isdbgrid":
		return "mongos"
	case h.SetName != "" && h.Writable:
		return "primary"
	case h.SetName != "":
		return "member"
	}
	return "standalone"
}
