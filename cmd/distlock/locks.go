package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/census"
	"mongodlm/cmd/internal/outlook"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

// locks implements the command locks. It only reads, and does not ping.
type locks struct {
	lister
	filter
	name string // empty for all locks
}

func (l *locks) flags(f *pflag.FlagSet) {
	l.lister.flags(f)
	l.filter.flags(f)
}

type lister struct {
	connection
	json, wide bool
}

func (l *lister) flags(f *pflag.FlagSet) {
	l.connection.flags(f)
	f.BoolVar(&l.json, "json", false, "print the result as JSON")
	f.BoolVar(&l.wide, "wide", false,
		"print all texts in full, even on a narrow terminal (as to files and pipes, without COLUMNS)")
}

func (l *locks) accept(c call) error {
	var err error
	if l.name, err = c.optionalLock(); err != nil {
		return err
	}
	if err := l.filter.accept(); err != nil {
		return err
	}
	if l.json && !c.Changed("sort") {
		l.order = "name" // JSON output is in the order of names
	}
	return l.connection.accept(c)
}

func (l *locks) run(ctx context.Context, s stdio) error {
	if l.name != "" {
		return show(ctx, s, &l.lister, l.details)
	}
	return show(ctx, s, &l.lister, l.collect)
}

// show calls the given function, and prints the result as a text or as JSON. If the database has no
// collection of locks, show returns an error with exitFailed.
func show[T interface{ print(io.Writer, layout) }](ctx context.Context, s stdio, l *lister,
	collect func(context.Context, *store) (T, error)) error {
	st, err := l.open(ctx, 0, logging{})
	if err != nil {
		return err
	}
	defer st.close()
	found, err := collect(ctx, st)
	if err != nil {
		return l.explain(err)
	}
	err = output(s.out, l.json, l.wide, found)
	if err == nil && st.never {
		return exit{code: exitFailed} // the database may be misspelt, as the output explains
	}
	return err
}

// A listing contains the locks, the queues and the malformed documents of a database.
type listing struct {
	Database string `json:"database"`
	// Never is true if the database has no collection of locks.
	Never     bool        `json:"neverUsed"`
	Locks     []row       `json:"locks"`
	Queue     queue       `json:"line"`
	Malformed problemList `json:"malformed"`

	empty           string // printed instead of an empty table
	count, troubled int    // the numbers of locks, and of locks in trouble
	troubleFirst    bool   // the rows are in the order of trouble
}

// A party is the common part of a row and a waiterRow. Its strings are unescaped, as stored.
type party struct {
	Name    string     `json:"name"`    // the lock's name
	Mode    string     `json:"mode"`    // exclusive, shared or permit; empty when the lock is free
	Limit   int        `json:"limit"`   // the number of permits; 0 except in mode permit
	Process string     `json:"process"` // the last holder's process when the lock is free
	Who     string     `json:"who"`
	Why     string     `json:"why"`
	Since   *time.Time `json:"since"` // by the server's clock; null when unknown
	// PingAgeMS is measured by the server's clock. It is null when unknown.
	PingAgeMS *int64   `json:"pingAgeMS"`
	Marks     []string `json:"marks"`
}

func partyOf(i distlock.LockInfo) party {
	return party{i.Name, i.Mode, i.Limit, i.Process, i.Who, i.Why, jsonTime(i.Since),
		milliseconds(i.PingAge), marks(i)}
}

// A row is one holder of a lock, or the last holder of a free lock.
type row struct {
	party
	Held bool `json:"held"`
	// HeldForMS is measured by the server's clock. It is null when unknown, or when the lock is free.
	HeldForMS *int64 `json:"heldForMS"`
	// LeaseMS is the duration of the lease, or 0 without a lease. LeaseAgeMS is the time since the
	// holder renewed the lease.
	LeaseMS    int64  `json:"leaseMS"`
	LeaseAgeMS *int64 `json:"leaseAgeMS"`
	Session    string `json:"session"` // the field ts
	Fence      int64  `json:"fence"`
	Waiters    int    `json:"waiters"`
}

type problem struct {
	Collection string `json:"collection"`
	ID         string `json:"id"`
	Field      string `json:"field"`
	Problem    string `json:"problem"`
	Remedy     string `json:"remedy"`
}

func (l *locks) collect(ctx context.Context, st *store) (listing, error) {
	found := newListing(st.database)
	all, err := census.Read(census.Unbounded, st.Locks(ctx), st.Waiters(ctx))
	if err != nil {
		return found, err
	}
	found.Malformed.add(all.Malformed...)
	found.troubleFirst = l.order == census.Orders[0].Name
	for _, lock := range l.apply(all.Locks) {
		found.add(lock)
	}
	switch {
	case found.count > 0:
	case len(all.Locks) > 0:
		found.empty = fmt.Sprintf("none of %d locks matches", len(all.Locks))
	case len(found.Malformed) > 0:
		found.empty = fmt.Sprintf("no lock in database %q can be understood", st.database)
	default:
		found.empty = st.noLocks(ctx)
		found.Never = st.never
	}
	return found, nil
}

func newListing(database string) listing {
	return listing{Database: database, Locks: []row{}, Malformed: problemList{},
		Queue: queue{[]waiterRow{}}}
}

func (l *listing) add(lock *census.Lock) {
	l.count++
	if lock.Trouble() > 0 {
		l.troubled++
	}
	for _, h := range lock.Holders {
		r := row{
			party: partyOf(h), Held: h.Held, HeldForMS: milliseconds(h.Age), LeaseMS: h.Lease.Milliseconds(),
			LeaseAgeMS: milliseconds(h.LeaseAge), Session: h.Session.Hex(), Fence: h.Fence,
			Waiters: h.Waiters,
		}
		if !h.Held {
			r.Mode, r.Limit, r.HeldForMS = "", 0, nil
		}
		l.Locks = append(l.Locks, r)
	}
	for _, w := range lock.Queue {
		l.Queue.Waiters = append(l.Queue.Waiters,
			waiterRow{party: partyOf(w), Place: w.Place, WaitedMS: milliseconds(w.Age), info: w})
	}
}

// print writes the listing for a person. On a terminal the locks in trouble come last, just above
// the summary, so that they stay on the screen.
func (l listing) print(w io.Writer, how layout) {
	t := table{empty: l.empty, columns: []column{
		{title: "NAME", minWidth: 8}, {title: "HELD FOR"}, {title: "PING"}, {title: "FENCE", spare: true},
		{title: "HOLDER", minWidth: 8, process: true}, {title: "MODE", blank: "exclusive", minWidth: 11},
		{title: "QUEUE", blank: "0"},
		{title: "MARKS", blank: "-", minWidth: 9}, {title: "WHY", minWidth: 4}, {title: "SINCE", wide: true},
	}}
	for _, r := range l.Locks {
		heldFor := age(duration(r.HeldForMS))
		if !r.Held {
			heldFor = "free"
		}
		t.rows = append(t.rows, []string{
			label(r.Name), heldFor, age(duration(r.PingAgeMS)), fmt.Sprint(r.Fence),
			how.process(r.Process), modeOf(r.Mode, r.Limit), fmt.Sprint(r.Waiters),
			shown(strings.Join(r.Marks, ", "), 60), how.text(r.Why, 60), stamp(r.Since),
		})
	}
	tables, onTerminal := []table{t}, how > 0 && l.empty == ""
	if len(l.Queue.Waiters) > 0 {
		tables = append(tables, l.Queue.table(how))
	}
	if onTerminal {
		slices.Reverse(tables)
	}
	if onTerminal && l.troubleFirst {
		slices.Reverse(t.rows)
	}
	for i, one := range tables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		one.print(w, how)
	}
	l.Malformed.print(w, how)
	if onTerminal {
		fmt.Fprintf(w, "\n%d locks, %d in trouble, %d waiters", l.count, l.troubled,
			len(l.Queue.Waiters))
		if n := len(l.Malformed); n > 0 {
			fmt.Fprintf(w, ", %d malformed", n)
		}
		fmt.Fprintln(w)
	}
}

func (l problemList) print(w io.Writer, how layout) {
	if len(l) == 0 {
		return
	}
	fmt.Fprint(w, "\nmalformed, never treated as free and never taken over:\n")
	for _, p := range l {
		wrap(w, how, fmt.Sprintf("  %s %s: field %q %s", p.Collection, named(p.ID), p.Field,
			shown(p.Problem, 400)), "    ")
		wrap(w, how, "    remedy: "+p.Remedy, "      ")
	}
}

type queue struct {
	Waiters []waiterRow `json:"waiters"`
}

// A waiterRow is one waiter.
type waiterRow struct {
	party
	Place int `json:"place"` // 1 is the next waiter
	// WaitedMS is measured by the server's clock. It is null when unknown.
	WaitedMS *int64 `json:"waitedMS"`

	info distlock.LockInfo
}

func (q queue) table(how layout) table {
	t := table{columns: []column{
		{title: "LOCK", minWidth: 8}, {title: "PLACE"}, {title: "WAITED"}, {title: "PING"},
		{title: "WAITER", minWidth: 8, process: true}, {title: "MODE", blank: "exclusive", minWidth: 11},
		{title: "MARKS", blank: "-", minWidth: 9}, {title: "WHY", minWidth: 4}, {title: "CALLER", wide: true},
	}}
	for _, r := range q.Waiters {
		t.rows = append(t.rows, []string{
			label(r.Name), fmt.Sprint(r.Place), age(duration(r.WaitedMS)), age(duration(r.PingAgeMS)),
			how.process(r.Process), modeOf(r.Mode, r.Limit), shown(strings.Join(r.Marks, ", "), 60),
			how.text(r.Why, 60), how.text(words.Caller(r.info), 120),
		})
	}
	return t
}

// details is the listing of one lock with its details, for "distlock locks NAME".
type details struct {
	listing
	// Outlooks contains a forecast for each holder, in the order of the holders.
	Outlooks []outlook.Outlook `json:"ifTheHolderDiedNow"`
	// Condemned contains an entry for each condemned holder.
	Condemned []condemnation `json:"condemned"`
	History   eventList      `json:"history"` // the newest entries
	// NoHistory is the error if the history could not be read. Otherwise it is empty.
	NoHistory string `json:"noHistory"`

	holders []distlock.LockInfo
}

const shownEvents = 10

// A condemnation is the mark in the ping document of a process that was declared dead. Its strings
// are unescaped, as stored.
type condemnation struct {
	Process  string     `json:"process"`
	By       string     `json:"by"`
	At       *time.Time `json:"at"`
	Evidence string     `json:"evidence"`
}

func (l *locks) details(ctx context.Context, st *store) (details, error) {
	holders, waiters, err := st.Holder(ctx, l.name)
	d := details{listing: newListing(st.database), Outlooks: []outlook.Outlook{},
		Condemned: []condemnation{}, History: newEventList(st), holders: holders}
	var bad *distlock.MalformedError
	switch {
	case errors.As(err, &bad):
		d.Malformed.add(bad)
		d.empty = fmt.Sprintf("lock %s cannot be understood", named(l.name))
		return d, nil
	case err != nil:
		return d, err
	case holders == nil:
		return d, st.missingLock(ctx, l.name)
	}
	d.add(&census.Lock{Name: l.name, Holders: holders, Queue: waiters})
	for _, i := range slices.Concat(holders, waiters) {
		d.Malformed.add(i.BadPing)
	}
	for _, h := range holders {
		if !h.Held {
			continue
		}
		d.Outlooks = append(d.Outlooks, outlook.Foresee(h, len(holders)-1, waiters))
		if h.Condemned {
			mark, err := readCondemnation(ctx, st, h.Process)
			if err != nil {
				return d, err
			}
			d.Condemned = append(d.Condemned, mark...)
		}
	}
	d.History, err = (&events{name: l.name, limit: shownEvents}).collect(ctx, st)
	if err != nil && ctx.Err() == nil { // the history is optional, and may need another privilege
		d.NoHistory, err = catalog.RedactUserInfo(err.Error()), nil
	}
	return d, err
}

// readCondemnation returns the condemnation of a process. The result is empty if the process has no
// readable ping or is not condemned.
func readCondemnation(ctx context.Context, st *store, process string) ([]condemnation, error) {
	raw, err := st.primary(st.database).Collection(catalog.PingsCollection).
		FindOne(ctx, bson.D{{Key: "_id", Value: process}}).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the ping of %s: %w", shown(process, 200), err)
	}
	ping, bad := catalog.ParsePing(raw)
	if bad != nil || ping.Condemned == nil {
		return nil, nil
	}
	c := ping.Condemned
	return []condemnation{{process, c.By, jsonTime(c.At), c.Evidence}}, nil
}

func (d details) print(w io.Writer, how layout) {
	if d.empty != "" {
		d.listing.print(w, how)
		return
	}
	describeHolders(w, how, d.holders)
	if n := len(d.Queue.Waiters); n == 0 {
		fmt.Fprintln(w, "no process waits for it")
	} else {
		fmt.Fprintf(w, "\n%d queued for it\n", n)
		d.Queue.table(how).print(w, how)
	}
	for _, c := range d.Condemned {
		fmt.Fprintf(w, "\ncondemned\n  process   %s\n  by        %s\n  at        %s\n  evidence  %s\n",
			shown(c.Process, 200), shown(c.By, 200), stamp(c.At), shown(c.Evidence, 800))
	}
	switch {
	case d.NoHistory != "":
		wrap(w, how, "\nthe history cannot be read: "+catalog.Printable(d.NoHistory, 400), "")
	case len(d.History.Events) > 0:
		fmt.Fprintln(w, "\nhistory, newest first")
		d.History.print(w, how)
	}
	for _, o := range d.Outlooks {
		holder := "its holder"
		if len(d.Outlooks) > 1 {
			holder = shown(short(o.Process), 100)
		}
		fmt.Fprintf(w, "\nif %s died now\n", holder)
		for _, one := range o.Lines(how.process) {
			wrap(w, how, fmt.Sprintf("  %-9s  %s", one.What, one.Text), "             ")
		}
	}
	d.Malformed.print(w, how)
}
