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

	"mongodlm/catalog"
	"mongodlm/claim"
	"mongodlm/distlock"
	"mongodlm/singleton"
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

// A process is one that holds or waits.
type process struct {
	distlock.LockInfo // one of those it stands in, for its ping
	Holds, Waits      []distlock.LockInfo
	MoreHeld          int
	Clock             string // how far its clock is from the server's
}

// A processList is the page of processes.
type processList struct {
	Query   string
	Rows    []*process
	Total   int
	Problem string // why those that hold nothing are not shown
}

func (s *Server) showProcesses(r *http.Request, now *state) any {
	query, echo := typed(r)
	l := processList{Query: echo}
	known := map[string]*process{}
	now.parties(func(i distlock.LockInfo) {
		p := known[i.Process]
		if p == nil {
			p = &process{LockInfo: i}
			known[i.Process] = p
			l.Rows = append(l.Rows, p)
		}
		switch {
		case !i.Held:
			p.Waits = append(p.Waits, i)
		case len(p.Holds) == maxHeldShown:
			p.MoreHeld++
		default:
			p.Holds = append(p.Holds, i)
		}
		p.Waits = p.Waits[:min(len(p.Waits), maxHeldShown)]
	})
	s.addPings(r, now, known, &l)
	l.Rows = slices.DeleteFunc(l.Rows, func(p *process) bool {
		return !contains(p.Process, query)
	})
	slices.SortStableFunc(l.Rows, func(a, b *process) int { return cmp.Compare(b.PingAge, a.PingAge) })
	l.Total = len(l.Rows)
	l.Rows = l.Rows[:min(len(l.Rows), maxProcesses)]
	return l
}

// addPings adds those who ping and neither hold nor wait, and the clocks of all.
func (s *Server) addPings(r *http.Request, now *state, known map[string]*process, l *processList) {
	if s.cfg.Client == nil {
		return
	}
	pings, err := s.pings.get(r.Context())
	if err != nil {
		l.Problem = s.problem(err)
		return
	}
	for _, ping := range pings {
		p := known[ping.Process]
		if p == nil {
			p = &process{LockInfo: distlock.LockInfo{Process: ping.Process, Place: 1, HasPing: true, PingAge: -1,
				PingEvery: ping.Interval, Takeover: ping.Takeover, Condemned: ping.Condemned != nil,
				Foreign: !ping.HasSeq && ping.Condemned == nil}}
			if !now.now.IsZero() {
				p.PingAge = max(0, now.now.Sub(ping.At))
			}
			l.Rows = append(l.Rows, p)
		}
		if !ping.Local.IsZero() {
			p.Clock = ping.Local.Sub(ping.At).Round(time.Millisecond).String()
		}
	}
}

// readPings reads the newest pings.
func (s *Server) readPings(ctx context.Context) ([]catalog.Ping, error) {
	cursor, err := s.cfg.Client.Database(s.cfg.Database, options.Database().SetReadPreference(readpref.Primary())).
		Collection(catalog.PingsCollection).
		Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "ping", Value: -1}}).SetLimit(maxProcesses))
	if err != nil {
		return nil, err
	}
	var all []catalog.Ping
	for cursor.Next(ctx) {
		if ping, bad := catalog.ParsePing(cursor.Current); bad == nil {
			all = append(all, ping)
		}
	}
	return all, errors.Join(cursor.Err(), cursor.Close(ctx))
}

// electionLabel marks those who stand in elections.
const electionLabel = "election"

// An electionRow is an election: a lock for which candidates stand.
type electionRow struct {
	*lock
	Leader *distlock.LockInfo // nil when nobody leads
}

func (s *Server) showElections(_ *http.Request, now *state) any {
	var rows []electionRow
	for _, k := range now.locks {
		stands := func(i distlock.LockInfo) bool { return role(i) == electionLabel }
		if !slices.ContainsFunc(k.Holders, stands) && !slices.ContainsFunc(k.Line, stands) {
			continue
		}
		row := electionRow{lock: k}
		if k.Held() {
			row.Leader = &k.Holders[0]
		}
		rows = append(rows, row)
	}
	return rows
}

// A loopRow is one loop or schedule.
type loopRow struct {
	singleton.Status
	Stopped, Malformed string
}

// A rest is what was asked for besides the locks, or why it could not be had.
type rest[T any] struct {
	Rows    []T
	Problem string
}

func restOf[T any](s *Server, r *http.Request, c *cell[[]T]) rest[T] {
	rows, err := c.get(r.Context())
	if err != nil {
		return rest[T]{Problem: s.problem(err)}
	}
	return rest[T]{Rows: rows}
}

func (s *Server) showLoops(r *http.Request, _ *state) any { return restOf(s, r, &s.loops) }

func (s *Server) readLoops(ctx context.Context) ([]loopRow, error) {
	if s.cfg.Client == nil {
		return nil, errNoClient
	}
	store, err := singleton.NewStore(s.cfg.Client.Database(s.cfg.Database))
	if err != nil {
		return nil, err
	}
	all, err := singleton.List(ctx, store)
	if err != nil {
		return nil, err
	}
	var rows []loopRow
	for _, status := range all[:min(len(all), maxLoops)] {
		row := loopRow{Status: status}
		switch {
		case status.Settings.Stopped:
			row.Stopped = "stopped"
		case status.Settings.Window != nil:
			row.Stopped = "outside " + status.Settings.Window.String()
		}
		if bad := errors.Join(status.Err, status.SettingsErr); bad != nil {
			row.Malformed = s.problem(bad)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// A queueRow is a queue of claims, found by the locks of its workers.
type queueRow struct {
	Namespace, Queue string
	Workers          int
	claim.Counts
	Problem string
}

func (s *Server) showQueues(r *http.Request, _ *state) any { return restOf(s, r, &s.queues) }

// readQueues counts the rows of every queue whose workers have left a lock:
// claim:DATABASE.COLLECTION:QUEUE:SLOT.
func (s *Server) readQueues(ctx context.Context) ([]queueRow, error) {
	if s.cfg.Client == nil {
		return nil, errNoClient
	}
	now, _ := s.poller.now()
	var rows []queueRow
	for _, k := range now.locks {
		parts := strings.Split(k.Name, ":")
		if len(parts) < 4 || parts[0] != "claim" {
			continue
		}
		namespace, queue := parts[1], strings.Join(parts[2:len(parts)-1], ":")
		at := slices.IndexFunc(rows, func(q queueRow) bool { return q.Namespace == namespace && q.Queue == queue })
		if at < 0 {
			if len(rows) == maxQueues {
				break
			}
			at = len(rows)
			rows = append(rows, queueRow{Namespace: namespace, Queue: queue})
		}
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
			claim.Config{})
		if err != nil {
			rows[i].Problem = s.problem(err)
		}
	}
	return rows, nil
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

// A serverPage is the page of the server.
type serverPage struct {
	rest[Member]
	Took     time.Duration
	Rounds   int
	Lookers  int
	Locks    int
	Interval time.Duration
}

func (s *Server) showServer(r *http.Request, now *state) any {
	return serverPage{rest: restOf(s, r, &s.members), Took: now.took, Rounds: now.seq, Lookers: len(s.streams),
		Locks: len(now.locks), Interval: s.cfg.Interval}
}

// hello is what a server says of itself.
type hello struct {
	LocalTime time.Time `bson:"localTime"`
	Me        string    `bson:"me"`
	SetName   string    `bson:"setName"`
	Writable  bool      `bson:"isWritablePrimary"`
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
	err := s.cfg.Client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}},
		options.RunCmd().SetReadPreference(readpref.Primary())).Decode(&h)
	if err != nil {
		return nil, err
	}
	m := Member{Host: cmp.Or(h.Me, s.cfg.Hosts), Kind: kindOf(h), RoundTrip: s.clock.Now().Mono - sent.Mono}
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
