package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/cmd/internal/words"
	"mongodlm/configserver"
	"mongodlm/internal/clock"
	"mongodlm/internal/role"
)

// doctor checks whether a server is suitable for locks.
type doctor struct {
	connection
	logging
	rounds, contenders int
	createIndexes      bool
	queue, field, due  string // queue is the collection of the rows, or empty
	featureList        string
	features           []role.Feature
	printsRole         bool
	json               bool
}

func (d *doctor) flags(f *pflag.FlagSet) {
	d.connection.flags(f)
	d.logging.flags(f)
	f.IntVar(&d.rounds, "rounds", 50, "rounds of each of the two races, 1 to 10000")
	f.IntVar(&d.contenders, "contenders", 16, "contenders in each race, 2 to 256")
	f.BoolVar(&d.createIndexes, "create-indexes", false,
		"create the missing indexes, and list them")
	f.StringVar(&d.queue, "queue", "", "a `collection` of the database with the rows "+
		"of a queue: check its\nindexes; default: all queues whose workers have acquired locks "+
		"here")
	f.StringVar(&d.field, "field", "claim",
		"the `name` of the field with the claim of a row, with --queue")
	f.StringVar(&d.due, "due", "", "the `field` of the queue's Config.Due, with --queue")
	f.StringVar(&d.featureList, "features", "locks,lines,transactions,history,listings",
		"the `list` of features that the user needs, from\n"+role.Names())
	f.BoolVar(&d.printsRole, "role", false, "only print the role with the least privileges for "+
		"--features and --database;\nno command is sent, so --uri is not needed")
	f.BoolVar(&d.json, "json", false, "print the report as JSON")
}

func (d *doctor) accept(c call) (err error) {
	if err := c.noArguments(); err != nil {
		return err
	}
	d.features, err = role.Parse(d.featureList)
	switch {
	case d.rounds < 1 || d.rounds > 10_000:
		return fmt.Errorf("--rounds is %d, must be 1 to 10000", d.rounds)
	case d.contenders < 2 || d.contenders > 256:
		return fmt.Errorf("--contenders is %d, must be 2 to 256", d.contenders)
	case d.queue == "" && (d.due != "" || d.field != "claim"):
		return errors.New("--field and --due need --queue with the collection of the queue")
	case strings.ContainsAny(d.queue, "$\x00"):
		return fmt.Errorf("--queue: %s is not a valid name of a collection", named(d.queue))
	case err != nil:
		return fmt.Errorf("--features: %w", err)
	case d.queue == "" && slices.Contains(d.features, role.Claims):
		return errors.New("--features claims: name the collection with --queue")
	}
	if d.printsRole {
		d.chooseDatabase()
		return nil
	}
	return d.connection.accept(c)
}

func (d *doctor) run(ctx context.Context, s stdio) error {
	if d.printsRole {
		return d.printRole(s.out)
	}
	// Each contender has a separate connection, so that all contenders race.
	st, err := d.connection.open(ctx, uint64(d.contenders)+2, d.logging)
	if err != nil {
		return err
	}
	defer st.close()
	r, err := d.examine(ctx, st)
	if err != nil {
		return err
	}
	st.log.Info().Str("kind", r.Kind).Str("version", r.Version).Bool("fit", r.Fit).
		Strs("refused", r.Refused).Strs("warnings", r.Warnings).Msg("examined")
	if err := output(s.out, d.json, false, r); err != nil {
		return err
	}
	switch { // the report states the reasons
	case !r.Fit:
		return exit{code: exitFailed}
	case len(r.Warnings) > 0:
		return exit{code: exitWarned}
	}
	return nil
}

// An examination is a report, with the state that its checks need.
type examination struct {
	*doctor
	*report
	st      *store
	catalog *mongocatalog.Catalog
}

// examine makes the report. It returns an error if the server does not answer.
func (d *doctor) examine(ctx context.Context, st *store) (report, error) {
	cat, err := mongocatalog.New(st.client, mongocatalog.Options{Database: d.database})
	if err != nil {
		return report{}, err
	}
	if _, err := cat.Hello(ctx); err != nil { // the first command also opens the connection
		return report{}, d.explain(err)
	}
	watch := clock.System()
	sent := watch.Now()
	server, err := cat.Hello(ctx)
	if err != nil {
		return report{}, d.explain(err)
	}
	r := newReport(server, d.hosts(), d.database)
	r.compareClocks(server, sent, watch.Now())
	if warning := cat.UpgradeDrops(ctx); warning != "" {
		r.warn("%s", warning)
	}
	refused := mongocatalog.Supported(server, d.database)
	d.createIndexes = d.createIndexes && refused == nil
	x := &examination{d, &r, st, cat}
	limit := 2 * mongocatalog.DefaultCommandTimeout
	if d.createIndexes { // the build of an index may take long
		limit = 24 * time.Hour
	}
	for _, check := range []func(context.Context) error{
		x.expiringIndexes, x.missingIndexes, x.queueIndexes, x.privileges, x.members, x.processes,
		func(ctx context.Context) error {
			return idleLocks(ctx, st.client.Database(d.database), manyIdle, &r)
		},
	} {
		limited, cancel := context.WithTimeout(ctx, limit)
		if err := check(limited); err != nil {
			r.warn("%s", catalog.RedactUserInfo(err.Error()))
		}
		cancel()
	}
	if refused != nil {
		r.Refused = append(r.Refused, refused.Error())
		return r, nil
	}
	return r, x.race(ctx)
}

const (
	idleAge  = 4 * 24 * time.Hour // the default of Config.PruneLocks
	manyIdle = 10_000
	maxIdle  = 100_000 // maximum count
)

// idleLocks warns if at least the given number of locks were not used for idleAge. The usual cause
// is a program that generates the names of its locks.
func idleLocks(ctx context.Context, db *mongo.Database, many int64, r *report) error {
	old := bson.D{{Key: "state", Value: 0}, {Key: "when", Value: bson.D{
		{Key: "$lt", Value: clock.System().Now().Wall.Add(-idleAge)}}}}
	n, err := db.Collection(catalog.LocksCollection).
		CountDocuments(ctx, old, options.Count().SetLimit(maxIdle))
	if err != nil {
		return fmt.Errorf("count idle locks: %w", err)
	}
	if n >= many {
		r.warn("at least %d free locks were not used for 4 days: Config.PruneLocks deletes the "+
			"documents of such locks", n)
	}
	return nil
}

const codeUnauthorized = 13

// race tests whether conditional updates are atomic.
func (x *examination) race(ctx context.Context) error {
	found, err := configserver.Check(ctx, x.st.client, configserver.CheckOptions{
		Database: x.database, Contenders: x.contenders, Rounds: x.rounds,
	})
	var server mongo.ServerError
	switch {
	case found.Contenders == 0 && errors.As(err, &server) && server.HasErrorCode(codeUnauthorized):
		x.Fit = x.Kind != string(catalog.FerretDB)
		x.warn("the races were not run: the user may not write to scratch collections of "+
			"database %s; --features doctor --role prints the role for it", named(x.database))
		return nil
	case err != nil && found.Contenders == 0:
		return x.explain(err)
	}
	if err != nil { // the report is complete, but the scratch collection remains
		x.warn("%s", catalog.RedactUserInfo(err.Error()))
	}
	x.Race = &race{found.Contenders, found.Acquire, found.CompareAndSet}
	x.Fit = found.Atomic
	if !found.Atomic {
		x.Refused = append(x.Refused, "conditional updates are NOT atomic: two processes could "+
			"hold one lock; use MongoDB 4.4 or newer")
	}
	return nil
}

// compareClocks records the offset between the clocks of the server and this machine, corrected by
// half the round trip. If the offset is large, compareClocks warns, because a takeover from a dead
// holder then takes longer.
func (r *report) compareClocks(server catalog.Server, sent, received clock.Reading) {
	if server.Time.IsZero() {
		return
	}
	trip := received.Mono - sent.Mono
	ahead := server.Time.Sub(sent.Wall.Add(trip / 2)).Round(time.Millisecond)
	r.Clock = &clocks{AheadMS: ahead.Milliseconds(), RoundTripMS: trip.Milliseconds()}
	const allowed = words.DefaultTakeover / 30
	if ahead.Abs()-trip/2 > allowed {
		r.warn("the clocks of the server and of this machine "+
			"differ by %v; above %v (a thirtieth of the takeover time) a dead holder is watched for "+
			"the whole takeover time before it is taken over; run NTP on both", ahead.Abs(), allowed)
	}
}

// limitations lists the features that the server lacks, compared with a replica set that has a
// separate database for locks.
func limitations(s catalog.Server, database string) []string {
	w := []string{}
	say := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }
	switch {
	case s.Kind == catalog.FerretDB && s.Front:
		say("one process on one machine: a single point of failure, without passwords")
		say("its cost per command grows with the collection; it is for trials and tests")
	case s.Kind == catalog.FerretDB, s.Kind == catalog.Standalone:
		say("a single server: no other server replaces it, and a crash can lose data that is not " +
			"yet on its disk, locks included")
	case s.Kind == catalog.Mongos:
		say("behind a mongos a process knows the store's clock only from its own last ping; " +
			"listings use the clock of the mongos")
	}
	if s.ConfigServer {
		say("a config server: MongoDB's own lock manager (3.2 to 6.0) works in the same collections " +
			"and takes a lock over after 15 minutes, so --takeover may be at most 15m")
	}
	hint := ""
	replicated := s.Kind == catalog.ReplicaSet || s.Kind == catalog.Mongos
	if replicated && !s.ConfigServer && database == mongosDatabase {
		hint = "; a separate database would have them: --database distlock"
	}
	if !s.Transactions {
		say("no transactions: work cannot be made to commit only while the lock is held%s", hint)
	}
	if !s.ChangeStreams {
		say("no change streams: waiters poll%s", hint)
	}
	if !s.PipelineUpdates {
		say("no pipeline updates: some steps take a read and a compare-and-set instead of one command")
	}
	return w
}

type report struct {
	Fit             bool     `json:"fit"`
	Hosts           string   `json:"hosts"`
	Database        string   `json:"database"`
	Kind            string   `json:"kind"`
	Version         string   `json:"version"`
	Embedded        bool     `json:"embedded"`
	ConfigServer    bool     `json:"configServer"`
	Transactions    bool     `json:"transactions"`
	ChangeStreams   bool     `json:"changeStreams"`
	PipelineUpdates bool     `json:"pipelineUpdates"`
	Clock           *clocks  `json:"clock,omitempty"`
	Race            *race    `json:"race,omitempty"` // absent without a race
	Weaker          []string `json:"weaker"`
	Warnings        []string `json:"warnings"`
	// MissingIndexes are the commands that create the missing indexes.
	MissingIndexes []string `json:"missingIndexes"`
	// CreatedIndexes are the commands that --create-indexes has carried out.
	CreatedIndexes    []string           `json:"createdIndexes"`
	MissingPrivileges []missingPrivilege `json:"missingPrivileges"`
	Members           []member           `json:"members"`      // for a replica set only
	WriteConcern      string             `json:"writeConcern"` // replica set: the acknowledgment of a write
	Refused           []string           `json:"refused"`
}

type clocks struct {
	AheadMS     int64 `json:"serverAheadMS"`
	RoundTripMS int64 `json:"roundTripMS"`
}

type race struct {
	Contenders    int                `json:"contenders"`
	Acquire       configserver.Tally `json:"acquire"`
	CompareAndSet configserver.Tally `json:"compareAndSet"`
}

func (r *report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

func newReport(s catalog.Server, hosts, database string) report {
	return report{
		Hosts: hosts, Database: database,
		Kind: string(s.Kind), Version: catalog.Printable(s.Version, 40), Embedded: s.Front,
		ConfigServer: s.ConfigServer, Transactions: s.Transactions,
		ChangeStreams: s.ChangeStreams, PipelineUpdates: s.PipelineUpdates,
		Weaker: limitations(s, database), Warnings: []string{}, Refused: []string{},
		MissingIndexes: []string{}, CreatedIndexes: []string{}, MissingPrivileges: []missingPrivilege{},
		Members: []member{},
	}
}

func (r report) print(w io.Writer, how layout) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	field := func(what, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", what, fmt.Sprintf(format, args...))
	}
	field("server", "%s", r.Hosts)
	kind := r.Kind
	if r.Embedded {
		kind += " behind the front of the embedded config server"
	}
	field("kind", "%s", kind)
	field("version", "%s", r.Version)
	field("config server", "%s", yesNo(r.ConfigServer))
	field("database", "%s", r.Database)
	field("transactions", "%s", yesNo(r.Transactions))
	field("change streams", "%s", yesNo(r.ChangeStreams))
	field("pipeline updates", "%s", yesNo(r.PipelineUpdates))
	if r.Clock != nil {
		ahead := time.Duration(r.Clock.AheadMS) * time.Millisecond
		side := "ahead of"
		if ahead < 0 {
			side = "behind"
		}
		field("clock", "%v %s this machine, round trip %d ms", ahead.Abs(), side, r.Clock.RoundTripMS)
	}
	if r.WriteConcern != "" {
		field("writes wait for", "%s", r.WriteConcern)
	}
	for _, m := range r.Members {
		field("member", "%s", m)
	}
	if r.Race != nil {
		field("contenders", "%d", r.Race.Contenders)
		field("acquire", "%v", r.Race.Acquire)
		field("compare-and-set", "%v", r.Race.CompareAndSet)
	} else {
		field("races", "not run")
	}
	_ = t.Flush() // w is a buffer and never fails
	list(w, how, "weaker than a replica set with a separate database", r.Weaker)
	list(w, how, "indexes created", r.CreatedIndexes)
	list(w, how, "warnings", r.Warnings)
	list(w, how, "refused", r.Refused)
	verdict := "fit to keep locks"
	if !r.Fit {
		verdict = "NOT fit to keep locks"
	}
	fmt.Fprintf(w, "\nverdict: %s\n", verdict)
}

func list(w io.Writer, how layout, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s:\n", title)
	for _, item := range items {
		wrap(w, how, "  - "+item, "    ")
	}
}
