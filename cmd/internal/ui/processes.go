package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

// A process is an entry in the list of the processes that ping, hold a lock or wait for a lock.
type process struct {
	distlock.LockInfo   // a row of the process, for the ping
	Holds, Waits        []distlock.LockInfo
	MoreHeld, MoreWaits int
	Clock               string // the offset of the process's clock from the server's clock
}

func (p *process) held() int { return len(p.Holds) + p.MoreHeld }

// dead reports whether the process is silent, was declared dead, or has no readable ping.
func (p *process) dead() bool { return p.Condemned || words.Silent(p.LockInfo) || !p.HasPing }

// rank orders the processes: dead holders, dead waiters, live processes, and then other dead
// processes.
func (p *process) rank() int {
	switch {
	case !p.dead():
		return 2
	case p.held() > 0:
		return 0
	case len(p.Waits) > 0:
		return 1
	}
	return 3
}

type processList struct {
	Query   string
	Figures []figure
	Rows    []*process
	Total   int    // number of matching processes; -1 when unknown
	Note    string // the omitted processes and the reason
	Empty   string // the message for an empty list
}

type pingList struct {
	pings []catalog.Ping
	more  bool
	now   time.Time // the server's clock
}

func (s *Server) showProcesses(r *http.Request, now *listing) any {
	query, echo := searchText(r)
	l := processList{Query: echo}
	known := map[string]*process{}
	now.each(func(i distlock.LockInfo) {
		p := known[i.Process]
		if p == nil {
			p = &process{LockInfo: i}
			p.Who, p.Lease = "", 0 // the fields belong to the lock
			known[i.Process] = p
			l.Rows = append(l.Rows, p)
		}
		in, more := &p.Waits, &p.MoreWaits
		if i.Held {
			in, more = &p.Holds, &p.MoreHeld
		}
		if len(*in) == maxHeldShown {
			*more++
		} else {
			*in = append(*in, i)
		}
	})
	whole := s.addPings(r, known, &l)
	l.figures(r, whole)
	show := r.URL.Query().Get("show")
	l.Rows = slices.DeleteFunc(l.Rows, func(p *process) bool {
		return !contains(p.Process, query) || show == "dead" && p.rank() != 0 || show == "gone" &&
			p.rank() != 3
	})
	slices.SortStableFunc(l.Rows, func(a, b *process) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(b.PingAge, a.PingAge))
	})
	l.Total, l.Empty = len(l.Rows), "No process matches."
	if !whole && show != "dead" {
		l.Total, l.Empty = -1, "No known process matches."
	}
	if query == "" && show == "" {
		l.Empty = "No process holds or waits."
	}
	if len(l.Rows) > maxProcesses {
		l.Rows = l.Rows[:maxProcesses]
		l.Note = fmt.Sprintf("The first %d are shown. %s", maxProcesses, l.Note)
	}
	return l
}

// The figures of the page count the known processes. If the pings are incomplete, only the number
// of dead holders is known.
func (l *processList) figures(r *http.Request, whole bool) {
	var ranks [4]int
	for _, p := range l.Rows {
		ranks[p.rank()]++
	}
	all, gone := len(l.Rows), ranks[3]
	if !whole {
		all, gone = -1, -1
	}
	l.Figures = []figure{
		figureOf(r, "All", "", all, ""),
		figureOf(r, "Dead with locks", "dead", ranks[0], "bad"),
		figureOf(r, "Dead without locks", "gone", gone, ""),
	}
}

// addPings adds the processes that ping but neither hold a lock nor wait for one. It also sets the
// clock offset of each process. It reports whether the result is complete.
func (s *Server) addPings(r *http.Request, known map[string]*process, l *processList) bool {
	read := s.pings.get(r.Context(), s, s.readPings)
	if read.problem != "" {
		l.Note = "Processes that neither hold nor wait are not shown: " + read.problem
		return false
	}
	for _, ping := range read.value.pings {
		p := known[ping.Process]
		if p == nil {
			p = &process{LockInfo: words.Pinging(ping, read.value.now)}
			l.Rows = append(l.Rows, p)
		}
		if !ping.Local.IsZero() {
			p.Clock = ping.Local.Sub(ping.At).Round(time.Millisecond).String()
		}
	}
	if read.value.more {
		l.Note = fmt.Sprintf("More than %d processes ping: of those that neither hold nor wait, only "+
			"the newest are shown, and dead processes may be missing.", maxProcesses)
	}
	return !read.value.more
}

func (s *Server) readPings(ctx context.Context) (found pingList, err error) {
	if s.cfg.Client == nil {
		return found, errNoClient
	}
	h, err := s.hello(ctx)
	if err != nil {
		return found, err
	}
	found.now = h.LocalTime
	cursor, err := s.cfg.Client.Database(s.cfg.Database,
		options.Database().SetReadPreference(readpref.Primary())).
		Collection(catalog.PingsCollection).
		Find(ctx, bson.D{},
			options.Find().SetSort(bson.D{{Key: "ping", Value: -1}}).SetLimit(maxProcesses+1))
	if err != nil {
		return found, err
	}
	for n := 1; cursor.Next(ctx); n++ {
		found.more = n > maxProcesses
		if ping, bad := catalog.ParsePing(cursor.Current); bad == nil && !found.more {
			found.pings = append(found.pings, ping)
		}
	}
	return found, errors.Join(cursor.Err(), cursor.Close(ctx))
}
