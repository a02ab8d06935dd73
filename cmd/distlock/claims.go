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

	"mongodlm/catalog"
	"mongodlm/claim"
	"mongodlm/cmd/internal/words"
)

// claims implements the command claims, for the queues of package claim.
type claims struct {
	lister
	collection, field string // collection is empty for all queues
	rowDatabase       string // the database of the rows
	due               string // the field with a row's due time; empty means the recorded field
	dead, repair      bool
	act               string // pause or resume, or empty
	queue             string
	limit             int
	retry, discard    []string
}

// allRows is the value of --retry and --discard that selects all dead rows.
const allRows = "all"

func (v *claims) flags(f *pflag.FlagSet) {
	v.lister.flags(f)
	f.StringVar(&v.field, "field", "claim",
		"the `name` of the field with the claim of a row of COLLECTION")
	f.StringVar(&v.due, "due", "", "the `name` of the field with the due time of a row "+
		"(Config.Due); default: the field that\nthe processes of the queue have recorded")
	f.BoolVar(&v.dead, "dead", false, "list the dead rows, with their errors")
	f.IntVar(&v.limit, "limit", 100, "the maximum `number` of rows that --dead lists")
	f.StringArrayVar(&v.retry, "retry", nil, "make the dead row with this `ID` ready, from its "+
		"first attempt; \"all\" for\nall dead rows. May be repeated")
	f.BoolVar(&v.repair, "repair", false, "make claimed rows ready that have no slot or no session, "+
		"because no process\ncan end them")
	f.StringVar(&v.queue, "queue", "queue", "the `name` of the queue that is paused or resumed "+
		"(Config.Queue)")
	f.StringArrayVar(&v.discard, "discard", nil, "remove the document of the dead row with this "+
		"`ID`; \"all\" for all dead rows.\nMay be repeated")
}

func (v *claims) accept(c call) error {
	args := c.Args()
	if len(args) > 1 && (args[0] == "pause" || args[0] == "resume") {
		v.act, args = args[0], args[1:]
	}
	if len(args) > 0 {
		v.collection = args[0]
	}
	actions := 0
	for _, given := range []bool{v.dead, v.repair, v.act != "", len(v.retry) > 0, len(v.discard) > 0} {
		if given {
			actions++
		}
	}
	switch {
	case len(args) > 1 || len(args) == 1 && args[0] == "":
		return fmt.Errorf("give one collection, not %q", args)
	case strings.ContainsAny(v.collection, "$\x00"):
		return fmt.Errorf("%s is not a valid name of a collection", named(v.collection))
	case v.field == "" || strings.ContainsAny(v.field, ".$\x00"):
		return errors.New("--field must be the name of a field, without a dot")
	case strings.HasPrefix(v.due, "$") || strings.ContainsRune(v.due, 0):
		return errors.New("--due must be a field name, which may have dots, but no leading dollar sign")
	case c.Changed("field") && v.collection == "":
		return errors.New("--field needs a COLLECTION, which is missing")
	case v.collection == "" && actions > 0:
		return errors.New("the collection is missing: name the collection of the rows")
	case actions > 1:
		return errors.New("give only one of pause, resume, --dead, --repair, --retry and --discard")
	case v.limit < 1:
		return fmt.Errorf("--limit is %d, must be at least 1", v.limit)
	case c.Changed("queue") && v.act == "":
		return errors.New("--queue needs pause or resume, which are missing")
	case c.Changed("limit") && !v.dead:
		return errors.New("--limit needs --dead, which is missing")
	}
	if _, err := parseIDs(append(v.retry, v.discard...)); err != nil {
		return err
	}
	return v.connection.accept(c)
}

// parseIDs parses the ids of rows. If one of the texts is allRows, parseIDs returns nil.
func parseIDs(texts []string) ([]any, error) {
	if slices.Contains(texts, allRows) {
		return nil, nil
	}
	ids, err := words.ParseIDs(texts)
	if err != nil {
		err = fmt.Errorf("the ID %w", err)
	}
	return ids, err
}

func (v *claims) run(ctx context.Context, s stdio) error {
	switch {
	case v.dead:
		return show(ctx, s, &v.lister, v.list)
	case v.repair || v.act != "" || len(v.retry) > 0 || len(v.discard) > 0:
		return v.change(ctx, s)
	}
	if v.collection == "" {
		return show(ctx, s, &v.lister, v.countQueues)
	}
	return show(ctx, s, &v.lister, v.count)
}

type deadList struct {
	Database   string    `json:"database"`
	Collection string    `json:"collection"`
	Dead       []deadRow `json:"dead"`
	More       bool      `json:"more"`              // more dead rows than --limit
	NoField    string    `json:"noField,omitempty"` // as in backlog
}

// missingField returns the name of the claim field if no row was found and no row has this field.
// Otherwise it returns the empty string.
func (v *claims) missingField(ctx context.Context, st *store, found int) string {
	if found > 0 {
		return ""
	}
	q, _ := v.count(ctx, st)
	return q.NoField
}

func printMissingField(w io.Writer, field string) {
	if field != "" {
		fmt.Fprintf(w, "no row has a field %s: no row was ever claimed, or the queue uses "+
			"another --field\n", named(field))
	}
}

// A deadRow is a dead row of a queue. Its times are by the server's clock. A missing time is null.
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

func (v *claims) list(ctx context.Context, st *store) (deadList, error) {
	admin, err := v.admin(ctx, st)
	m := deadList{Database: v.rowDatabase, Collection: v.collection, Dead: []deadRow{}}
	if err != nil {
		return m, err
	}
	for row, err := range admin.List(ctx, claim.StateDead) {
		if err != nil && row.ID.IsZero() {
			return m, err
		}
		if m.More = len(m.Dead) == v.limit; m.More {
			break
		}
		one := deadRow{ID: words.ID(row.ID), Attempts: row.Attempts, DeadAt: jsonTime(row.DeadAt),
			LastError: row.LastError, Errors: []failure{}}
		for _, f := range row.Errors {
			one.Errors = append(one.Errors, failure{f.Attempt, jsonTime(f.At), f.Process, f.Error})
		}
		if err != nil {
			one.Malformed = err.Error()
		}
		m.Dead = append(m.Dead, one)
	}
	m.NoField = v.missingField(ctx, st, len(m.Dead))
	return m, nil
}

func (m deadList) print(w io.Writer, how layout) {
	if len(m.Dead) == 0 {
		fmt.Fprintf(w, "no row of %s is dead\n", named(m.Database+"."+m.Collection))
		printMissingField(w, m.NoField)
		return
	}
	for _, r := range m.Dead {
		wrap(w, how, fmt.Sprintf("%s  dead since %s, attempts %d: %s", shown(r.ID, 200), stamp(r.DeadAt),
			r.Attempts, catalog.Printable(cmp.Or(r.Malformed, r.LastError), 300)), "  ")
		for _, f := range r.Errors {
			wrap(w, how, fmt.Sprintf("  %d  %s  %s  %s", f.Attempt, stamp(f.At),
				cmp.Or(how.process(f.Process), "-"), catalog.Printable(f.Error, 300)), "     ")
		}
	}
	if m.More {
		fmt.Fprintln(w, "more rows are dead; --limit sets the number of listed rows")
	}
}

type changeResult struct {
	Database   string `json:"database"`
	Collection string `json:"collection"`
	Retried    *int   `json:"retried,omitempty"`
	Discarded  *int   `json:"discarded,omitempty"`
	Repaired   *int   `json:"repaired,omitempty"`
	Paused     *bool  `json:"paused,omitempty"`
	NoField    string `json:"noField,omitempty"` // as in backlog
}

func (c changeResult) print(w io.Writer, _ layout) {
	in := named(c.Database + "." + c.Collection)
	switch {
	case c.Paused != nil && *c.Paused:
		fmt.Fprintf(w, "the queue of %s is paused: within about a minute, no process claims rows\n", in)
	case c.Paused != nil:
		fmt.Fprintf(w, "the queue of %s is resumed\n", in)
	case c.Repaired != nil:
		fmt.Fprintf(w, "%d claimed rows of %s are ready again\n", *c.Repaired, in)
	case c.Retried != nil:
		fmt.Fprintf(w, "%d dead rows of %s are ready again\n", *c.Retried, in)
	default:
		fmt.Fprintf(w, "%d dead rows of %s were removed\n", *c.Discarded, in)
	}
	printMissingField(w, c.NoField)
}

// admin returns an Admin for the rows, after a check of the collection.
func (v *claims) admin(ctx context.Context, st *store) (*claim.Admin, error) {
	if err := v.checkCollection(ctx, st); err != nil {
		return nil, err
	}
	return claim.NewAdmin(v.rows(st), claim.Config{Field: v.field, Queue: v.queue})
}

// change carries out the requested action, such as a retry. It returns an error if one of the given
// rows was not dead.
func (v *claims) change(ctx context.Context, s stdio) error {
	retry, _ := parseIDs(v.retry) // accept has validated the ids
	discard, _ := parseIDs(v.discard)
	n, ids := 0, append(retry, discard...)
	err := show(ctx, s, &v.lister, func(ctx context.Context, st *store) (c changeResult, err error) {
		admin, err := v.admin(ctx, st)
		c = changeResult{Database: v.rowDatabase, Collection: v.collection}
		if err != nil {
			return c, err
		}
		switch {
		case v.act != "":
			c.Paused = new(v.act == "pause")
			return c, admin.SetPaused(ctx, *c.Paused)
		case v.repair:
			n, err = admin.Repair(ctx)
			c.Repaired = &n
			return c, err
		case len(v.retry) > 0 && retry == nil:
			n, err = admin.RetryAll(ctx)
		case len(v.retry) > 0:
			n, err = admin.Retry(ctx, retry...)
		case discard == nil:
			n, err = admin.Purge(ctx, claim.StateDead, 0)
		default:
			n, err = admin.Delete(ctx, claim.StateDead, discard...)
		}
		if c.Retried = &n; len(v.discard) > 0 {
			c.Retried, c.Discarded = nil, &n
		}
		if err == nil {
			c.NoField = v.missingField(ctx, st, n)
		}
		return c, err
	})
	if err == nil && n < len(ids) {
		err = fmt.Errorf("%d of %d rows were not dead, or do not exist: %s", len(ids)-n, len(ids),
			shown(strings.Join(append(v.retry, v.discard...), ", "), 200))
	}
	return err
}
