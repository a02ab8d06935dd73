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
	"mongodlm/singleton"
)

type loopRow struct {
	singleton.Status
	Stopped, Malformed string
}

// Failed reports whether the latest finished round of the loop failed.
func (l loopRow) Failed() bool { return l.Failures > 0 || l.State == singleton.Failed }

// trouble ranks a loop for sorting. Loops with malformed documents have the highest rank, and
// failing loops the next.
func (l loopRow) trouble() int { return 2*boolean(l.Malformed != "") + boolean(l.Failed()) }

// Newest returns the recorded rounds of the loop, the newest first.
func (l loopRow) Newest() []singleton.PastRun {
	runs := slices.Clone(l.Runs)
	slices.Reverse(runs)
	return runs
}

// A loopSummary counts the loops and schedules of a database. It lists at most maxLoops of them.
type loopSummary struct {
	rows                               []loopRow // malformed first, then failing, then stopped
	total, failing, stopped, malformed int
}

type loopList struct {
	Figures []figure
	Rows    []loopRow
	Total   int
	Listed  int // the number of kept rows, at most Total
}

func (s *Server) showLoops(r *http.Request, _ state) content {
	return contentOf(s.loops.get(r.Context(), s, s.readLoops),
		func(all loopSummary) any { return listLoops(r, all) })
}

func listLoops(r *http.Request, all loopSummary) loopList {
	l := loopList{Total: all.total, Listed: len(all.rows)}
	show := r.URL.Query().Get("show")
	for _, row := range all.rows {
		is, known := map[string]bool{"failed": row.Failed(), "stopped": row.Stopped != "",
			"malformed": row.Malformed != ""}[show]
		if is || !known {
			l.Rows = append(l.Rows, row)
		}
	}
	l.Figures = []figure{
		figureOf(r, "All", "", all.total, ""),
		figureOf(r, "Failing", "failed", all.failing, "bad"),
		figureOf(r, "Stopped", "stopped", all.stopped, "late"),
		figureOf(r, "Malformed", "malformed", all.malformed, "bad"),
	}
	return l
}

func boolean(b bool) (n int) {
	count(&n, b)
	return n
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

func (s *Server) readLoops(ctx context.Context) (found loopSummary, err error) {
	if s.cfg.Client == nil {
		return found, errNoClient
	}
	store, err := singleton.NewStore(s.cfg.Client.Database(s.cfg.Database))
	if err != nil {
		return found, err
	}
	all, err := singleton.List(ctx, store)
	if err != nil {
		return found, err
	}
	rows := make([]loopRow, 0, len(all))
	for _, status := range all {
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
		count(&found.failing, row.Failed())
		count(&found.stopped, row.Stopped != "")
		count(&found.malformed, row.Malformed != "")
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b loopRow) int {
		return cmp.Or(-cmp.Compare(a.trouble(), b.trouble()),
			-cmp.Compare(a.Failures, b.Failures),
			-cmp.Compare(boolean(a.Stopped != ""), boolean(b.Stopped != "")))
	})
	found.total, found.rows = len(rows), slices.Clone(rows[:min(len(rows), maxLoops)])
	return found, nil
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
	maxHeldShown = 50 // locks of one process
	maxQueues    = 20
	maxLoops     = 500
)

var errNoClient = errors.New("this store is not MongoDB")

const electionLabel = "election"

// Elections are locks with candidates.
func (s *Server) showElections(_ *http.Request, now *listing) any {
	var rows []*lock
	for _, k := range now.locks {
		isElection := func(i distlock.LockInfo) bool { return words.Role(i) == electionLabel }
		if !slices.ContainsFunc(k.Holders, isElection) && !slices.ContainsFunc(k.Queue, isElection) {
			continue
		}
		s.palette.ofLock(k)
		rows = append(rows, k)
	}
	return rows
}

// A queueRow describes a queue of package claim. The page discovers a queue by the locks of its
// workers.
type queueRow struct {
	Namespace, Queue string
	Workers          int
	claim.Counts
	Problem string
	due     string // Due of the queue's Config
}

// A queueSummary counts the queues. It lists at most maxQueues of them.
type queueSummary struct {
	Rows  []queueRow
	Total int
}

// readQueues counts the rows of at most maxQueues queues. A queue has lock documents with names
// such as claim:DATABASE.COLLECTION:QUEUE:SLOT. The queue with the most dead rows comes first.
func (s *Server) readQueues(ctx context.Context) (found queueSummary, err error) {
	if s.cfg.Client == nil {
		return found, errNoClient
	}
	now := s.locks.get(ctx, s, s.read)
	if now.at.IsZero() || now.problem != "" {
		return found, errors.New("the locks of the workers could not be read")
	}
	var rows []*queueRow
	known := map[[2]string]*queueRow{}
	for _, k := range now.value.locks {
		parts := strings.Split(k.Name, ":")
		if len(parts) < 4 || parts[0] != "claim" {
			continue
		}
		key := [2]string{parts[1], strings.Join(parts[2:len(parts)-1], ":")}
		row := known[key]
		if row == nil {
			row = &queueRow{Namespace: key[0], Queue: key[1]}
			known[key] = row
			rows = append(rows, row)
		}
		row.due = cmp.Or(row.due, claim.ConfigOf(k.Holders[0].Why).Due)
		if last := parts[len(parts)-1]; k.Held() && last != "rescue" {
			row.Workers++
		}
	}
	found.Total = len(rows)
	for _, row := range rows[:min(len(rows), maxQueues)] {
		if !strings.Contains(row.Namespace, ".") {
			row.Problem = "the lock's name has no DATABASE.COLLECTION"
		} else if admin, err := claim.NewAdmin(s.collection(row.Namespace),
			claim.Config{Due: row.due}); err != nil {
			row.Problem = s.problem(err)
		} else if row.Counts, err = admin.Count(ctx); err != nil {
			row.Problem = s.problem(err)
		}
		found.Rows = append(found.Rows, *row)
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
		Locks: contentOf(now, func(l *listing) any { return len(l.locks) })}}
}

// hello is the server's reply to the command isMaster.
type hello struct {
	LocalTime time.Time `bson:"localTime"`
	Me        string    `bson:"me"`
	SetName   string    `bson:"setName"`
	Writable  bool      `bson:"ismaster"`
	Message   string    `bson:"msg"`
}

// hello sends the command isMaster to the server that accepts writes.
func (s *Server) hello(ctx context.Context) (h hello, err error) {
	// The command isMaster is used because the command hello exists only from MongoDB 4.4.2 on.
	err = s.cfg.Client.Database("admin").RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}},
		options.RunCmd().SetReadPreference(readpref.Primary())).Decode(&h)
	if err == nil && h.LocalTime.IsZero() {
		err = errors.New("the server does not report its clock")
	}
	return h, err
}

// readMembers reads the clock of each member. If the members are unknown, it reads the clock of the
// server that accepts writes.
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
	h, err := s.hello(ctx)
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
