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
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/claim"
	"mongodlm/cmd/internal/words"
)

// claims implements the command claims, for the queues of package claim.
type claims struct {
	lister
	collection, field string // collection is empty for all queues
	due               string // the field with a row's due time; empty means the recorded field
	dead, repair      bool
	act               string // pause or resume, or empty
	queue             string
	limit             int
	retry, discard    []string
	ids               []any // the parsed ids of retry or discard; nil for all rows
	refused           error // the errors of the queues that countQueues omits
}

// allRows is the value of --retry and --discard that selects all dead rows.
const allRows = "all"

func (v *claims) flags(f *pflag.FlagSet) {
	v.lister.flags(f)
	f.StringVar(&v.field, "field", words.DefaultField,
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
	if texts := v.given(); !slices.Contains(texts, allRows) {
		var err error
		if v.ids, err = words.ParseIDs(texts); err != nil {
			return fmt.Errorf("the ID %w", err)
		}
	}
	return v.connection.accept(c)
}

// given returns the values of --retry or --discard, which are mutually exclusive.
func (v *claims) given() []string { return slices.Concat(v.retry, v.discard) }

func (v *claims) run(ctx context.Context, s stdio) error {
	switch {
	case v.dead:
		return show(ctx, s, &v.lister, v.list)
	case v.repair || v.act != "" || len(v.retry) > 0 || len(v.discard) > 0:
		return v.change(ctx, s)
	case v.collection == "":
		return cmp.Or(show(ctx, s, &v.lister, v.countQueues), v.refused)
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
	rows, admin, err := v.admin(ctx, st)
	if err != nil {
		return deadList{}, err
	}
	m := deadList{Database: rows.Database().Name(), Collection: rows.Name(), Dead: []deadRow{}}
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
	if len(m.Dead) == 0 {
		m.NoField, _ = v.missingField(ctx, rows) // the list is complete without it
	}
	return m, nil
}

func (m deadList) print(w io.Writer, how layout) {
	if len(m.Dead) == 0 {
		fmt.Fprintf(w, "no row of %s is dead\n", named(m.Database+"."+m.Collection))
		printMissingField(w, m.NoField)
		return
	}
	for _, r := range m.Dead {
		wrap(w, how, fmt.Sprintf("%s  dead since %s, attempts %d: %s", shown(r.ID, len(r.ID)),
			stamp(r.DeadAt), r.Attempts, how.text(cmp.Or(r.Malformed, r.LastError), 300)), "  ")
		for _, f := range r.Errors {
			wrap(w, how, fmt.Sprintf("  %d  %s  %s  %s", f.Attempt, stamp(f.At),
				how.process(f.Process), how.text(f.Error, 300)), "     ")
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

// admin returns the collection of the rows, and an Admin for it.
func (v *claims) admin(ctx context.Context, st *store) (*mongo.Collection, *claim.Admin, error) {
	rows, err := v.rows(ctx, st)
	if err != nil {
		return nil, nil, err
	}
	admin, err := claim.NewAdmin(rows, claim.Config{Field: v.field, Queue: v.queue})
	return rows, admin, err
}

// change carries out the requested action, such as a retry. It returns an error if one of the given
// rows was not dead.
func (v *claims) change(ctx context.Context, s stdio) error {
	n := 0
	err := show(ctx, s, &v.lister, func(ctx context.Context, st *store) (c changeResult, err error) {
		rows, admin, err := v.admin(ctx, st)
		if err != nil {
			return c, err
		}
		c = changeResult{Database: rows.Database().Name(), Collection: rows.Name()}
		switch {
		case v.act != "":
			c.Paused = new(v.act == "pause")
			return c, admin.SetPaused(ctx, *c.Paused)
		case v.repair:
			n, err = admin.Repair(ctx)
			c.Repaired = &n
			return c, err
		case len(v.retry) > 0 && v.ids == nil:
			n, err = admin.RetryAll(ctx)
			c.Retried = &n
		case len(v.retry) > 0:
			n, err = admin.Retry(ctx, v.ids...)
			c.Retried = &n
		case v.ids == nil:
			n, err = admin.Purge(ctx, claim.StateDead, 0)
			c.Discarded = &n
		default:
			n, err = admin.Delete(ctx, claim.StateDead, v.ids...)
			c.Discarded = &n
		}
		if err == nil && n == 0 {
			c.NoField, _ = v.missingField(ctx, rows) // the change is complete without it
		}
		return c, err
	})
	if err == nil && n < len(v.ids) {
		err = fmt.Errorf("%d of %d rows were not dead, or do not exist: %s", len(v.ids)-n, len(v.ids),
			shown(strings.Join(v.given(), ", "), 200))
	}
	return err
}

// A backlog counts the rows of a collection by state.
type backlog struct {
	Database   string `json:"database"`
	Collection string `json:"collection"`
	Ready      int64  `json:"ready"`
	Later      int64  `json:"later"` // ready, but never due or not due yet; not in Ready
	Claimed    int64  `json:"claimed"`
	Retrying   int64  `json:"retrying"`
	Dead       int64  `json:"dead"`
	Done       int64  `json:"done"`
	Due        string `json:"due,omitempty"` // the field with the due time of a row
	Paused     bool   `json:"paused,omitempty"`
	OddRows    int64  `json:"oddRows,omitempty"` // rows that can never be claimed, in no other count
	// Odd describes at most twenty of the rows that OddRows counts.
	Odd []string `json:"odd,omitempty"`
	// NoField is the name of the claim field, if no row has that field. Then no row was ever claimed,
	// or the name is wrong. Otherwise NoField is empty.
	NoField string `json:"noField,omitempty"`

	config claim.Config // the fields Field, Due and Key
}

func backlogOf(rows *mongo.Collection, cfg claim.Config) backlog {
	return backlog{Database: rows.Database().Name(), Collection: rows.Name(), Due: cfg.Due,
		config: cfg}
}

func (q backlog) name() string { return q.Database + "." + q.Collection }

func (q *backlog) set(n claim.Counts) {
	q.Ready, q.Later, q.Claimed = n.Ready, n.Later, n.Claimed
	q.Retrying, q.Dead, q.Done = n.Retrying, n.Dead, n.Done
}

// rows returns the collection of the rows. For a queue with a lock document, v.collection may also
// be DATABASE.COLLECTION. If the collection does not exist and no queue uses it, rows returns an
// error. A user who may not list collections may still count rows.
func (v *claims) rows(ctx context.Context, st *store) (*mongo.Collection, error) {
	rows := st.client.Database(v.database).Collection(v.collection)
	found, err := rows.Database().
		ListCollectionNames(ctx, bson.D{{Key: "name", Value: v.collection}})
	var denied mongo.ServerError
	if len(found) > 0 || err != nil && !errors.As(err, &denied) {
		return rows, err
	}
	known, err := st.queues(ctx)
	if err != nil {
		return nil, err
	}
	for _, q := range known {
		if q.Namespace == v.collection || q.Namespace == v.database+"."+v.collection {
			return q.Collection(st.client), nil
		}
	}
	if denied != nil {
		return rows, nil
	}
	return nil, fmt.Errorf("there is no collection %s in database %q; \"distlock claims\" lists the "+
		"queues", named(v.collection), v.database)
}

// missingField returns the name of the claim field if the collection has rows and no row has this
// field. Otherwise it returns the empty string.
func (v *claims) missingField(ctx context.Context, rows *mongo.Collection) (string, error) {
	exists := bson.D{{Key: v.field, Value: bson.D{{Key: "$exists", Value: true}}}}
	err := rows.FindOne(ctx, exists).Err()
	if !errors.Is(err, mongo.ErrNoDocuments) {
		return "", err
	}
	if err = rows.FindOne(ctx, bson.D{}).Err(); errors.Is(err, mongo.ErrNoDocuments) {
		return "", nil
	}
	return v.field, err
}

func (v *claims) count(ctx context.Context, st *store) (q backlog, err error) {
	rows, err := v.rows(ctx, st)
	if err != nil {
		return q, err
	}
	known, err := st.queues(ctx)
	if err != nil {
		return q, err
	}
	cfg := claim.Config{Field: v.field, Due: v.due}
	for _, one := range known {
		if one.Namespace == rows.Database().Name()+"."+rows.Name() && one.Config.Field == v.field {
			cfg.Due, cfg.Key = cmp.Or(cfg.Due, one.Config.Due), one.Config.Key
		}
	}
	q = backlogOf(rows, cfg)
	admin, err := claim.NewAdmin(rows, cfg)
	if err != nil {
		return q, err
	}
	n, err := admin.Count(ctx)
	q.set(n)
	q.OddRows = n.Odd
	if err == nil && q.Ready > 0 && q.Claimed+q.Retrying+q.Dead+q.Done == 0 {
		q.NoField, err = v.missingField(ctx, rows)
	}
	if err == nil {
		q.Odd, err = admin.Odd(ctx)
	}
	if err == nil {
		q.Paused, _ = admin.Paused(ctx) // a user without the privilege still gets the counts
	}
	return q, err
}

func (q backlog) print(w io.Writer, _ layout) {
	later := ""
	if q.Due != "" {
		later = fmt.Sprintf("%d later (by field %s), ", q.Later, named(q.Due))
	}
	if q.NoField != "" {
		fmt.Fprintf(w, "%d rows of %s have no field %s: they are ready if their queue uses it\n",
			q.Ready, named(q.name()), named(q.NoField))
	} else {
		fmt.Fprintf(w, "%d ready, %s%d claimed, %d retrying, %d dead, %d done in %s\n", q.Ready, later,
			q.Claimed, q.Retrying, q.Dead, q.Done, named(q.name()))
	}
	if q.Paused {
		fmt.Fprintln(w, "the queue \"queue\" is paused")
	}
	if q.OddRows > 0 {
		fmt.Fprintf(w, "%d rows can never be claimed\n", q.OddRows)
	}
	for _, one := range q.Odd {
		fmt.Fprintln(w, catalog.Printable(one, 400))
	}
}
