package ui

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"mongodlm/cmd/internal/census"
)

var processFilters = []filter[*census.Process]{
	{"", "All", "", func(*census.Process) bool { return true }},
	{"dead", "Dead with locks", "bad", func(p *census.Process) bool { return p.Rank() == 0 }},
	{"gone", "Dead without locks", "", func(p *census.Process) bool { return p.Rank() == 3 }},
}

type processList struct {
	Query   string
	Figures []figure
	Rows    []*census.Process
	Total   int    // number of matching processes
	Whole   bool   // all processes are known
	Note    string // the omitted processes and the reason
}

func (s *Server) showProcesses(r *http.Request, now *listing) any {
	l := processList{Query: searchText(r)}
	pings := s.pings.get(r.Context(), s, s.readPings)
	switch {
	case pings.problem != "":
		pings.value = census.Pings{}
		l.Note = "Processes that neither hold nor wait are not shown: " + pings.problem
	case pings.value.More:
		l.Note = fmt.Sprintf("More than %d processes ping: of those that neither hold nor wait, only "+
			"the newest are shown, and dead processes may be missing.", maxProcesses)
	default:
		l.Whole = true
	}
	l.Figures, l.Rows = filtered(r, now.Processes(pings.value), processFilters)
	if !l.Whole {
		l.Figures[0].N, l.Figures[2].N = "-", "-"
	}
	l.Rows = slices.DeleteFunc(l.Rows,
		func(p *census.Process) bool { return !contains(p.Process, l.Query) })
	l.Total = len(l.Rows)
	if len(l.Rows) > maxProcesses {
		l.Rows = l.Rows[:maxProcesses]
		l.Note = fmt.Sprintf("The first %d are shown. %s", maxProcesses, l.Note)
	}
	return l
}

func (s *Server) readPings(ctx context.Context) (census.Pings, error) {
	return census.ReadPings(ctx, s.cfg.Client, s.cfg.Database, maxProcesses)
}
