package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
)

// showing tells all that is known of one lock. It only reads.
type showing struct {
	connection
	name       string
	json, wide bool
}

func (v *showing) flags(f *pflag.FlagSet) {
	v.connection.flags(f)
	f.BoolVar(&v.json, "json", false, "print it as JSON")
	f.BoolVar(&v.wide, "wide", false, wideText)
}

func (v *showing) accept(c call) error {
	var err error
	if v.name, err = lockName(append(c.args, c.after...)); err != nil {
		return err
	}
	return v.connection.accept(c)
}

func (v *showing) run(ctx context.Context, s stdio) error {
	return show(ctx, s, &v.connection, v.json, v.wide, v.collect)
}

// A dossier is all that is known of one lock.
type dossier struct {
	listing
	Line queue `json:"line"`
	// Outlooks has one for each holder, in their order.
	Outlooks []outlook `json:"ifTheHolderDiedNow"`
	// Condemned says why contenders have declared holders dead.
	Condemned []verdict `json:"condemned"`
	History   chronicle `json:"history"` // the newest of it
	// NoHistory says why it could not be read; empty when it could.
	NoHistory string `json:"noHistory"`
}

// shownPast is how many entries of the history are shown.
const shownPast = 10

// A verdict is the mark of a process that a contender has declared dead. Its texts are as stored.
type verdict struct {
	Process  string     `json:"process"`
	By       string     `json:"by"`
	At       *time.Time `json:"at"`
	Evidence string     `json:"evidence"`
}

func (v *showing) collect(ctx context.Context, st *store) (dossier, error) {
	d := dossier{listing: newListing(v.database), Line: newQueue(v.database), Outlooks: []outlook{},
		Condemned: []verdict{}}
	if err := (&locks{name: v.name}).collectOne(ctx, st, &d.listing); err != nil {
		return d, err
	}
	for _, w := range d.line {
		d.Malformed.add(w.BadPing)
		d.Line.add(w)
	}
	for _, h := range d.one {
		if !h.Held {
			continue
		}
		d.Outlooks = append(d.Outlooks, foresee(h, len(d.one)-1, d.line))
		if h.Condemned {
			mark, err := condemnation(ctx, st, h.Process)
			if err != nil {
				return d, err
			}
			d.Condemned = append(d.Condemned, mark...)
		}
	}
	var err error
	d.History, err = (&past{connection: v.connection, name: v.name, limit: shownPast}).collect(ctx, st)
	if err != nil && ctx.Err() == nil { // it is beside the locks, and may need a privilege more
		d.NoHistory, err = redact(err.Error(), v.uri), nil
	}
	return d, err
}

// condemnation reads why a process was declared dead; nothing when its ping has gone meanwhile.
func condemnation(ctx context.Context, st *store, process string) ([]verdict, error) {
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
	return []verdict{{process, c.By, moment(c.At), c.Evidence}}, nil
}

// print writes it for a person.
func (d dossier) print(w io.Writer, how layout) {
	if d.void != "" {
		fmt.Fprintln(w, d.void)
		d.Malformed.print(w)
		return
	}
	describeHolders(w, d.one)
	if len(d.line) == 0 {
		fmt.Fprintln(w, "nobody waits for it")
	} else {
		fmt.Fprintf(w, "\n%d in line for it\n", len(d.line))
		d.Line.print(w, how)
	}
	for _, c := range d.Condemned {
		at := time.Time{}
		if c.At != nil {
			at = *c.At
		}
		fmt.Fprintf(w, "\ncondemned\n  process   %s\n  by        %s\n  at        %s\n  evidence  %s\n",
			shown(c.Process, 200), shown(c.By, 200), instant(at), shown(c.Evidence, 800))
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
		o.print(w, how, len(d.Outlooks) > 1)
	}
	d.Malformed.print(w)
}
