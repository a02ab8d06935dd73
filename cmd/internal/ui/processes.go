package ui

import (
	"cmp"
	"context"
	"errors"
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

// A process is one that holds or waits.
type process struct {
	distlock.LockInfo   // one of those it stands in, for its ping
	Holds, Waits        []distlock.LockInfo
	MoreHeld, MoreWaits int
	Clock               string // how far its clock is from the server's
}

// held is how many locks it holds.
func (p *process) held() int { return len(p.Holds) + p.MoreHeld }

// dead reports whether it is silent, was declared dead, or has no ping that can be understood.
func (p *process) dead() bool { return p.Condemned || words.Silent(p.LockInfo) || !p.HasPing }

// rank puts the dead that hold locks first and those that hold nothing last.
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

// A processList is the page of processes.
type processList struct {
	Query   string
	Figures []figure
	Rows    []*process
	Total   int
	Problem string // why those that hold nothing are not shown
}

func (s *Server) showProcesses(r *http.Request, now *listing) any {
	query, echo := typed(r)
	l := processList{Query: echo}
	known := map[string]*process{}
	now.parties(func(i distlock.LockInfo) {
		p := known[i.Process]
		if p == nil {
			p = &process{LockInfo: i}
			p.Who, p.Lease = "", 0 // which are those of the lock
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
	s.addPings(r, now, known, &l)
	l.figures(r)
	show := r.URL.Query().Get("show")
	l.Rows = slices.DeleteFunc(l.Rows, func(p *process) bool {
		return !contains(p.Process, query) || show == "dead" && p.rank() != 0 || show == "gone" &&
			p.rank() != 3
	})
	slices.SortStableFunc(l.Rows, func(a, b *process) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(b.PingAge, a.PingAge))
	})
	l.Total = len(l.Rows)
	l.Rows = l.Rows[:min(len(l.Rows), maxProcesses)]
	return l
}

// figures count who is there.
func (l *processList) figures(r *http.Request) {
	var ranks [4]int
	for _, p := range l.Rows {
		ranks[p.rank()]++
	}
	l.Figures = []figure{
		figureOf(r, "All", "", len(l.Rows), ""),
		figureOf(r, "Dead with locks", "dead", ranks[0], "bad"),
		figureOf(r, "Dead with none", "gone", ranks[3], ""),
	}
}

// addPings adds those who ping and neither hold nor wait, and the clocks of all.
func (s *Server) addPings(r *http.Request, now *listing, known map[string]*process,
	l *processList) {
	if s.cfg.Client == nil {
		return
	}
	pings := s.pings.get(r.Context())
	if l.Problem = pings.problem; l.Problem != "" {
		return
	}
	for _, ping := range pings.value {
		p := known[ping.Process]
		if p == nil {
			p = &process{LockInfo: distlock.LockInfo{Process: ping.Process, Place: 1, HasPing: true,
				PingAge: -1, PingEvery: ping.Interval, Takeover: ping.Takeover,
				Condemned: ping.Condemned != nil, Foreign: !ping.HasSeq && ping.Condemned == nil}}
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
	cursor, err := s.cfg.Client.Database(s.cfg.Database,
		options.Database().SetReadPreference(readpref.Primary())).
		Collection(catalog.PingsCollection).
		Find(ctx, bson.D{},
			options.Find().SetSort(bson.D{{Key: "ping", Value: -1}}).SetLimit(maxProcesses))
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
