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
	distlock.LockInfo // a row of the process, for the ping
	Holds, Waits      []distlock.LockInfo
	Clock             string // the offset of the process's clock from the server's clock
}

// awaited returns the number of waiters for the locks that the process holds.
func (p *process) awaited() (n int) {
	for _, i := range p.Holds {
		n += i.Waiters
	}
	return n
}

// rank orders the processes: dead holders, dead waiters, live processes, and then other dead
// processes. A process is dead if it is silent, was declared dead, or has no readable ping.
func (p *process) rank() int {
	switch {
	case !words.Suspect(p.LockInfo): // the entry has no lease
		return 2
	case len(p.Holds) > 0:
		return 0
	case len(p.Waits) > 0:
		return 1
	}
	return 3
}

var processFilters = []filter[*process]{
	{"", "All", "", func(*process) bool { return true }},
	{"dead", "Dead with locks", "bad", func(p *process) bool { return p.rank() == 0 }},
	{"gone", "Dead without locks", "", func(p *process) bool { return p.rank() == 3 }},
}

type processList struct {
	Query   string
	Figures []figure
	Rows    []*process
	Total   int    // number of matching processes
	Whole   bool   // all processes are known
	Note    string // the omitted processes and the reason
}

type pingList struct {
	pings []catalog.Ping
	more  bool
	now   time.Time // the server's clock
}

func (s *Server) showProcesses(r *http.Request, now *listing) any {
	l := processList{Query: searchText(r)}
	known := map[string]*process{}
	for _, k := range now.locks {
		for _, i := range slices.Concat(k.Holders, k.Queue) {
			if !i.Held && i.Place == 0 {
				continue // the last holder of a free lock
			}
			p := known[i.Process]
			if p == nil {
				p = &process{LockInfo: i}
				p.Who, p.Lease = "", 0 // the fields belong to the lock
				known[i.Process] = p
				l.Rows = append(l.Rows, p)
			}
			if i.Held {
				p.Holds = append(p.Holds, i)
			} else {
				p.Waits = append(p.Waits, i)
			}
		}
	}
	l.addPings(s.pings.get(r.Context(), s, s.readPings), known)
	l.Figures, l.Rows = filtered(r, l.Rows, processFilters)
	if !l.Whole {
		l.Figures[0].N, l.Figures[2].N = "-", "-"
	}
	l.Rows = slices.DeleteFunc(l.Rows, func(p *process) bool { return !contains(p.Process, l.Query) })
	slices.SortStableFunc(l.Rows, func(a, b *process) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), b.awaited()-a.awaited(),
			cmp.Compare(b.PingAge, a.PingAge))
	})
	l.Total = len(l.Rows)
	if len(l.Rows) > maxProcesses {
		l.Rows = l.Rows[:maxProcesses]
		l.Note = fmt.Sprintf("The first %d are shown. %s", maxProcesses, l.Note)
	}
	return l
}

// addPings adds the processes that ping but neither hold a lock nor wait for one. It also sets the
// clock offset of each process.
func (l *processList) addPings(read reading[pingList], known map[string]*process) {
	if read.problem != "" {
		l.Note = "Processes that neither hold nor wait are not shown: " + read.problem
		return
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
	if l.Whole = !read.value.more; read.value.more {
		l.Note = fmt.Sprintf("More than %d processes ping: of those that neither hold nor wait, only "+
			"the newest are shown, and dead processes may be missing.", maxProcesses)
	}
}

func (s *Server) readPings(ctx context.Context) (found pingList, err error) {
	if s.cfg.Client == nil {
		return found, errNoClient
	}
	if found.now, err = s.serverTime(ctx); err != nil {
		return found, err
	}
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
