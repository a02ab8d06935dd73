package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/cmd/internal/words"
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

	awaited int // the waiters for the locks that the process holds
}

func (v *processes) collect(ctx context.Context, st *store) (processList, error) {
	found := processList{Database: st.database, Processes: []processRow{}, Malformed: problemList{}}
	all := map[string]*processRow{}
	add := func(one distlock.LockInfo) { addProcess(all, one) }
	err := each(st.Locks(ctx), &found.Malformed, add)
	if err == nil {
		err = each(st.Waiters(ctx), &found.Malformed, add)
	}
	if err == nil {
		err = st.pings(ctx, all, &found.Malformed)
	}
	if err != nil {
		return found, err
	}
	if len(all) == 0 {
		found.empty = st.emptyText(ctx,
			fmt.Sprintf("no process pings in database %q, and none holds or waits", st.database))
	}
	for _, p := range all {
		slices.Sort(p.Holds)
		slices.Sort(p.Waits)
		found.Processes = append(found.Processes, *p)
	}
	byPing := func(p processRow) time.Duration {
		if p.PingAgeMS == nil {
			return math.MaxInt64 // processes without a ping come last
		}
		return duration(p.PingAgeMS)
	}
	slices.SortFunc(found.Processes, func(a, b processRow) int {
		return cmp.Or(cmp.Compare(b.trouble(), a.trouble()), cmp.Compare(byPing(a), byPing(b)),
			cmp.Compare(a.Process, b.Process))
	})
	return found, nil
}

// trouble returns the rank of a process. A listing begins with the highest rank. A process has rank
// 0 if it has no mark, or only the mark "foreign". Otherwise the rank of a holder is the number of
// waiters for its locks plus 2, and the rank of a waiter is 1.
func (p processRow) trouble() int {
	switch {
	case !slices.ContainsFunc(p.Marks, func(mark string) bool { return mark != "foreign" }):
		return 0
	case len(p.Holds) > 0:
		return 2 + p.awaited
	}
	return min(1, len(p.Waits))
}

// addProcess adds a holder or a waiter to the row of its process. It skips the last holder of a
// free lock.
func addProcess(all map[string]*processRow, one distlock.LockInfo) {
	if one.Process == "" || !one.Held && one.Place == 0 {
		return
	}
	p := processOf(all, one)
	to := &p.Waits
	if one.Held {
		to = &p.Holds
		p.awaited += one.Waiters
	}
	if !slices.Contains(*to, one.Name) {
		*to = append(*to, one.Name)
	}
}

// processOf returns the row of a process. If the map has no row for it, processOf adds one. A row
// omits the marks that belong to a single lock, such as "leader".
func processOf(all map[string]*processRow, one distlock.LockInfo) *processRow {
	if all[one.Process] == nil {
		one.Who, one.Lease = "", 0
		all[one.Process] = &processRow{
			Process: one.Process, PingAgeMS: milliseconds(one.PingAge),
			TakeoverMS: milliseconds(cmp.Or(one.Takeover, -1)),
			EveryMS:    milliseconds(cmp.Or(one.PingEvery, -1)), Holds: []string{}, Waits: []string{},
			Marks: marks(one),
		}
	}
	return all[one.Process]
}

// pings adds the data of the ping documents to the map. It also adds the processes that ping and
// have no locks.
func (s *store) pings(ctx context.Context, into map[string]*processRow,
	malformed *problemList) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	cursor, err := s.primary(s.database).Collection(catalog.PingsCollection).
		Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return fmt.Errorf("list %s.%s: %w", s.database, catalog.PingsCollection, err)
	}
	for cursor.Next(ctx) {
		ping, bad := catalog.ParsePing(cursor.Current)
		if bad != nil {
			malformed.add(bad)
			continue
		}
		p := processOf(into, words.Pinging(ping, now))
		if !ping.Local.IsZero() {
			p.AheadMS = new(ping.Local.Sub(ping.At).Milliseconds())
		}
	}
	return errors.Join(cursor.Err(), cursor.Close(ctx))
}

// now returns the server's clock, or zero if it is unknown.
func (s *store) now(ctx context.Context) (time.Time, error) {
	cat, err := mongocatalog.New(s.client, mongocatalog.Options{Database: s.database})
	if err != nil {
		return time.Time{}, err
	}
	_, err = cat.Hello(ctx)
	return cat.ListingTime(), err
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
