package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"mongodlm/cmd/internal/census"
	"mongodlm/distlock"
)

// processes implements the command ps. It only reads.
type processes struct{ lister }

func (v *processes) accept(c call) error {
	if err := c.noArguments(); err != nil {
		return err
	}
	return v.connection.accept(c)
}

func (v *processes) run(ctx context.Context, s stdio) error {
	return show(ctx, s, &v.lister, v.collect)
}

type processList struct {
	Database  string       `json:"database"`
	Processes []processRow `json:"processes"`
	Malformed problemList  `json:"malformed"`

	empty string // printed instead of an empty table
}

// A processRow is one process. Its strings are unescaped, as stored.
type processRow struct {
	Process string `json:"process"`
	// PingAgeMS is the age of the last ping by the server's clock. AheadMS is the offset of the
	// process's clock from the server's clock at the time of that ping. Both are null when unknown.
	PingAgeMS  *int64   `json:"pingAgeMS"`
	AheadMS    *int64   `json:"clockAheadMS"`
	TakeoverMS *int64   `json:"takeoverMS"` // null when not recorded
	EveryMS    *int64   `json:"pingEveryMS"`
	Holds      []string `json:"holds"` // names of locks
	Waits      []string `json:"waits"`
	Marks      []string `json:"marks"`
}

func (v *processes) collect(ctx context.Context, st *store) (processList, error) {
	found := processList{Database: st.database, Processes: []processRow{}, Malformed: problemList{}}
	all, err := census.Read(census.Unbounded, st.Locks(ctx), st.Waiters(ctx))
	if err != nil {
		return found, err
	}
	pings, err := census.ReadPings(ctx, st.client, st.database, 0)
	if err != nil {
		return found, err
	}
	found.Malformed.add(all.Malformed...)
	found.Malformed.add(pings.Malformed...)
	for _, p := range all.Processes(pings) {
		row := processRow{
			Process: p.Process, PingAgeMS: milliseconds(p.PingAge),
			TakeoverMS: milliseconds(cmp.Or(p.Takeover, -1)),
			EveryMS:    milliseconds(cmp.Or(p.PingEvery, -1)),
			Holds:      namesOf(p.Holds), Waits: namesOf(p.Waits), Marks: marks(p.LockInfo),
		}
		if p.Ahead != nil {
			row.AheadMS = new(p.Ahead.Milliseconds())
		}
		found.Processes = append(found.Processes, row)
	}
	if len(found.Processes) == 0 {
		found.empty = st.emptyText(ctx,
			fmt.Sprintf("no process pings in database %q, and none holds or waits", st.database))
	}
	return found, nil
}

// namesOf returns the names of locks, each once.
func namesOf(rows []distlock.LockInfo) []string {
	names := []string{}
	for _, i := range rows {
		names = append(names, i.Name)
	}
	return slices.Compact(names) // a listing is in the order of names
}

func (c processList) print(w io.Writer, how layout) {
	t := table{empty: c.empty, columns: []column{
		{title: "PROCESS", minWidth: 8}, {title: "PING"}, {title: "OF"}, {title: "CLOCK", blank: "0s"},
		{title: "MARKS", blank: "-", minWidth: 9}, {title: "HOLDS", minWidth: 8},
		{title: "WAITS FOR", blank: "-", minWidth: 8},
	}}
	alike := map[string]int{}
	for _, p := range c.Processes {
		alike[how.process(p.Process)]++
	}
	for _, p := range c.Processes {
		id, clock := how.process(p.Process), "-"
		if alike[id] > 1 {
			id = how.text(p.Process, longText)
		}
		if p.AheadMS != nil {
			clock = signed(time.Duration(*p.AheadMS) * time.Millisecond)
		}
		t.rows = append(t.rows, []string{
			id, age(duration(p.PingAgeMS)), age(duration(p.TakeoverMS)), clock,
			shown(strings.Join(p.Marks, ", "), 60), listed(p.Holds), listed(p.Waits),
		})
	}
	t.print(w, how)
	c.Malformed.print(w, how)
}

// signed formats a clock's offset with its sign, to a tenth of a second.
func signed(d time.Duration) string {
	if d = d.Round(100 * time.Millisecond); d > 0 {
		return "+" + d.String()
	}
	return d.String()
}

const maxListed = 50

// listed joins the names of locks. It returns a dash if there are no names.
func listed(names []string) string {
	if len(names) == 0 {
		return "-"
	}
	var all []string
	for _, name := range names[:min(len(names), maxListed)] {
		all = append(all, label(name))
	}
	if more := len(names) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, ", ")
}
