package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/claim"
	"mongodlm/cmd/internal/words"
)

// claims shows the rows of a queue of package claim, and tries dead ones again or removes them.
type claims struct {
	jobs
	dead           bool
	limit          int
	retry, discard []string
}

// allRows is the word for all rows that are dead.
const allRows = "all"

func (v *claims) flags(f *pflag.FlagSet) {
	v.jobs.flags(f)
	f.BoolVar(&v.dead, "dead", false, "list the rows that are dead, with their errors")
	f.IntVar(&v.limit, "limit", 100, "the `number` of rows that --dead lists at most")
	f.StringArrayVar(&v.retry, "retry", nil, "make the dead row with this `ID` ready, from its "+
		"first attempt; \"all\": all\nof them. May be repeated")
	f.StringArrayVar(&v.discard, "discard", nil, "remove the document of the dead row with this "+
		"`ID`; \"all\": of all of them.\nMay be repeated")
}

func (v *claims) accept(c call) error {
	if err := v.jobs.accept(c); err != nil {
		return err
	}
	ways := 0
	for _, given := range []bool{v.dead, len(v.retry) > 0, len(v.discard) > 0} {
		if given {
			ways++
		}
	}
	switch {
	case v.collection == "" && ways > 0:
		return errors.New("the collection is missing: name the one whose rows are worked on")
	case ways > 1:
		return errors.New("give one of --dead, --retry and --discard")
	case v.limit < 1:
		return fmt.Errorf("--limit is %d, must be at least 1", v.limit)
	case c.given("limit") && !v.dead:
		return errors.New("--limit is that of --dead, which is missing")
	}
	_, err := idsOf(append(v.retry, v.discard...))
	return err
}

// idsOf reads the ids of rows; nil for all.
func idsOf(texts []string) ([]any, error) {
	if slices.Contains(texts, allRows) {
		return nil, nil
	}
	ids := []any{}
	for _, text := range texts {
		id, err := words.ParseID(text)
		if err != nil {
			return nil, fmt.Errorf("the ID %w", err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (v *claims) run(ctx context.Context, s stdio) error {
	switch {
	case v.dead:
		return show(ctx, s, &v.lister, v.list)
	case len(v.retry) > 0:
		return v.change(ctx, s, v.retry, claim.RetryAll, claim.Retry)
	case len(v.discard) > 0:
		return v.change(ctx, s, v.discard,
			func(ctx context.Context, rows *mongo.Collection, cfg claim.Config) (int, error) {
				return claim.Purge(ctx, rows, cfg, claim.StateDead, 0)
			},
			func(ctx context.Context, rows *mongo.Collection, cfg claim.Config, ids ...any) (int, error) {
				return claim.Delete(ctx, rows, cfg, claim.StateDead, ids...)
			})
	}
	if v.collection == "" {
		return show(ctx, s, &v.lister, v.queues)
	}
	return v.tell(ctx, s)
}

// A morgue is the dead rows of a collection.
type morgue struct {
	Database   string    `json:"database"`
	Collection string    `json:"collection"`
	Dead       []deadRow `json:"dead"`
	More       bool      `json:"more"`              // than --limit
	NoField    string    `json:"noField,omitempty"` // as of a backlog
}

// lacking names the field where nothing was found and no row has it. It is a hint: who may not
// count the rows has none.
func (v *claims) lacking(ctx context.Context, st *store, found int) string {
	if found > 0 {
		return ""
	}
	q, _ := v.count(ctx, st)
	return q.NoField
}

func printLacking(w io.Writer, field string) {
	if field != "" {
		fmt.Fprintf(w, "no row has a field %s: none was ever claimed, or it is another one (--field)\n",
			named(field))
	}
}

// A deadRow is one of them. Its texts are as stored, its times are by the server's clock and null
// when there is none.
type deadRow struct {
	ID        string     `json:"id"`
	Attempts  int        `json:"attempts"`
	DeadAt    *time.Time `json:"deadAt"`
	LastError string     `json:"lastError"`
	Errors    []failure  `json:"errors"`
	Malformed string     `json:"malformed,omitempty"`
}

type failure struct {
	Attempt int        `json:"attempt"`
	At      *time.Time `json:"at"`
	Process string     `json:"process"`
	Error   string     `json:"error"`
}

func (v *claims) list(ctx context.Context, st *store) (morgue, error) {
	m := morgue{Database: v.database, Collection: v.collection, Dead: []deadRow{}}
	if err := v.there(ctx, st); err != nil {
		return m, err
	}
	for row, err := range claim.List(ctx, v.rows(st), claim.Config{Field: v.field}, claim.StateDead) {
		if err != nil && row.ID.IsZero() {
			return m, err
		}
		if m.More = len(m.Dead) == v.limit; m.More {
			break
		}
		one := deadRow{ID: words.ID(row.ID), Attempts: row.Attempts, DeadAt: moment(row.DeadAt),
			LastError: row.LastError, Errors: []failure{}}
		for _, f := range row.Errors {
			one.Errors = append(one.Errors, failure{f.Attempt, moment(f.At), f.Process, f.Error})
		}
		if err != nil {
			one.Malformed = err.Error()
		}
		m.Dead = append(m.Dead, one)
	}
	m.NoField = v.lacking(ctx, st, len(m.Dead))
	return m, nil
}

// print writes the dead rows for a person, each with its errors below it.
func (m morgue) print(w io.Writer, how layout) {
	if len(m.Dead) == 0 {
		fmt.Fprintf(w, "no row of %s is dead\n", named(m.Database+"."+m.Collection))
		printLacking(w, m.NoField)
		return
	}
	for _, r := range m.Dead {
		fmt.Fprintf(w, "%s  dead since %s, attempts %d: %s\n", shown(r.ID, 200), stamp(r.DeadAt),
			r.Attempts, catalog.Printable(cmp.Or(r.Malformed, r.LastError), 300))
		for _, f := range r.Errors {
			fmt.Fprintf(w, "  %d  %s  %s  %s\n", f.Attempt, stamp(f.At), cmp.Or(how.process(f.Process), "-"),
				catalog.Printable(f.Error, 300))
		}
	}
	if m.More {
		fmt.Fprintln(w, "and more; --limit says how many are listed")
	}
}

// A changed is what came of --retry or --discard.
type changed struct {
	Database   string `json:"database"`
	Collection string `json:"collection"`
	Retried    *int   `json:"retried,omitempty"`
	Discarded  *int   `json:"discarded,omitempty"`
	NoField    string `json:"noField,omitempty"` // as of a backlog
}

func (c changed) print(w io.Writer, _ layout) {
	in := named(c.Database + "." + c.Collection)
	if c.Retried != nil {
		fmt.Fprintf(w, "%d dead rows of %s are ready again\n", *c.Retried, in)
	} else {
		fmt.Fprintf(w, "%d dead rows of %s were removed\n", *c.Discarded, in)
	}
	printLacking(w, c.NoField)
}

// change does something to all dead rows, or to some, and fails when not each of them was dead.
func (v *claims) change(ctx context.Context, s stdio, texts []string,
	all func(context.Context, *mongo.Collection, claim.Config) (int, error),
	some func(context.Context, *mongo.Collection, claim.Config, ...any) (int, error)) error {
	ids, _ := idsOf(texts) // accept has checked them
	n := 0
	err := show(ctx, s, &v.lister, func(ctx context.Context, st *store) (c changed, err error) {
		c = changed{Database: v.database, Collection: v.collection}
		if err := v.there(ctx, st); err != nil {
			return c, err
		}
		if ids == nil {
			n, err = all(ctx, v.rows(st), claim.Config{Field: v.field})
		} else {
			n, err = some(ctx, v.rows(st), claim.Config{Field: v.field}, ids...)
		}
		if c.Retried = &n; len(v.discard) > 0 {
			c.Retried, c.Discarded = nil, &n
		}
		if err == nil {
			c.NoField = v.lacking(ctx, st, n)
		}
		return c, err
	})
	if err == nil && n < len(ids) {
		err = fmt.Errorf("%d of %d rows were not dead, or not there: %s", len(ids)-n, len(ids),
			shown(strings.Join(texts, ", "), 200))
	}
	return err
}
