package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/outlook"
	"mongodlm/distlock"
)

// LockDetails contains the details of one lock, for "distlock locks NAME". The type is exported
// because package json cannot decode an embedded pointer to an unexported type.
type LockDetails struct {
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

func (l *locks) collectOne(ctx context.Context, st *store, found *listing) error {
	holders, waiters, err := st.Holder(ctx, l.name)
	d := &LockDetails{Outlooks: []outlook.Outlook{}, Condemned: []condemnation{}, holders: holders}
	found.LockDetails = d
	var bad *distlock.MalformedError
	switch {
	case errors.As(err, &bad):
		found.Malformed.add(bad)
		found.empty = fmt.Sprintf("lock %s cannot be understood", named(l.name))
		return nil
	case err != nil:
		return err
	case holders == nil:
		return st.missingLock(ctx, l.name)
	}
	for _, w := range waiters {
		found.addWaiter(w)
	}
	for _, h := range holders {
		found.add(h)
		if !h.Held {
			continue
		}
		d.Outlooks = append(d.Outlooks, outlook.Foresee(h, len(holders)-1, waiters))
		if h.Condemned {
			mark, err := readCondemnation(ctx, st, h.Process)
			if err != nil {
				return err
			}
			d.Condemned = append(d.Condemned, mark...)
		}
	}
	d.History, err = (&events{name: l.name, limit: shownEvents}).collect(ctx, st)
	if err != nil && ctx.Err() == nil { // the history is optional, and may need another privilege
		d.NoHistory, err = catalog.RedactUserInfo(err.Error()), nil
	}
	return err
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

func (d *LockDetails) print(w io.Writer, how layout, q queue) {
	describeHolders(w, how, d.holders)
	if len(q.Waiters) == 0 {
		fmt.Fprintln(w, "no process waits for it")
	} else {
		fmt.Fprintf(w, "\n%d queued for it\n", len(q.Waiters))
		q.printOf(w, how)
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
		fmt.Fprintln(w)
		printOutlook(w, how, o, len(d.Outlooks) > 1)
	}
}

// printOutlook writes the forecast for a holder. It names the holder if the lock has several
// holders.
func printOutlook(w io.Writer, how layout, o outlook.Outlook, several bool) {
	holder := "its holder"
	if several {
		holder = shown(short(o.Process), 100)
	}
	fmt.Fprintf(w, "if %s died now\n", holder)
	for _, one := range o.Lines(how.process) {
		const indent = "             "
		wrap(w, how, fmt.Sprintf("  %-9s  %s", one.What, one.Text), indent)
	}
}
