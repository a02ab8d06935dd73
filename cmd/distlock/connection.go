package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
)

// The environment variables for --uri and --database.
const (
	envURI      = "MONGODLM_URI"
	envDatabase = "MONGODLM_DATABASE"
)

const (
	closeLimit = 10 * time.Second // for the cleanup at the end of a command
	maxText    = 1024             // bytes of a lock's name or a reason
	maxURIFile = 64 << 10
)

// The default values of flags. The times are those of package distlock. The default database is not
// mongosDatabase, where servers refuse change streams and transactions.
const (
	defaultDatabase = "distlock"
	mongosDatabase  = "config"
	defaultPing     = 30 * time.Second
	defaultTakeover = 15 * time.Minute
)

// connection has the flags for the server and the database of the locks.
type connection struct{ uri, uriFile, database string }

// flags declares the flags. The environment variables are not the defaults of the flags, because
// the help would print a connection string with its password.
func (c *connection) flags(f *pflag.FlagSet) {
	f.StringVar(&c.uri, "uri", "", "connection `string` of the MongoDB, which other users of this "+
		"machine can read in the\nlist of processes; default: "+envURI)
	f.StringVar(&c.uriFile, "uri-file", "",
		"a `file` that holds the connection string, instead of --uri")
	f.StringVar(&c.database, "database", "", "the `name` of the database that holds the collections "+
		"locks and lockpings;\ndefault: "+envDatabase+", else "+defaultDatabase)
}

func (c *connection) secrets() string { return c.uri }

// accept reads the connection string from the file or the environment if --uri is not set. It
// validates all values.
func (c *connection) accept(given call) error {
	switch {
	case c.uri != "" && c.uriFile != "":
		return errors.New("--uri and --uri-file exclude each other: leave one of them out")
	case c.uriFile != "":
		if err := c.readURI(given.warn); err != nil {
			return fmt.Errorf("--uri-file: %w", err)
		}
	case c.uri == "":
		c.uri = os.Getenv(envURI)
	}
	if c.uri == "" {
		return errors.New("--uri is missing: give the connection string of a MongoDB, or set " + envURI)
	}
	c.chooseDatabase()
	if !strings.HasPrefix(c.uri, "mongodb+srv://") { // mongodb+srv needs DNS for a check
		if err := options.Client().ApplyURI(c.uri).Validate(); err != nil {
			return fmt.Errorf("the connection string (--uri): %w", err)
		}
	}
	return problems(distlock.Config{URI: c.uri, Database: c.database}.Validate())
}

func (c *connection) chooseDatabase() {
	if c.database == "" {
		c.database = cmp.Or(os.Getenv(envDatabase), defaultDatabase)
	}
}

// readURI reads the connection string. It warns of a file that every user may read.
func (c *connection) readURI(warn func(string)) error {
	f, err := os.Open(c.uriFile)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the file was only read
	text, err := io.ReadAll(io.LimitReader(f, maxURIFile))
	if err != nil {
		return err
	}
	if c.uri = strings.TrimSpace(string(text)); c.uri == "" {
		return fmt.Errorf("%s is empty", shown(c.uriFile, 200))
	}
	info, err := f.Stat()
	const everybody = 0o004
	open := err == nil && info.Mode().IsRegular() && info.Mode()&everybody != 0
	if open && runtime.GOOS != "windows" { // Windows reports every file as readable
		warn(fmt.Sprintf("%s can be read by every user of this machine: chmod 600",
			shown(c.uriFile, 200)))
	}
	return nil
}

// problems replaces the names of fields in a configuration error by the names of flags.
func problems(err error) error {
	var config *distlock.ConfigError
	if errors.As(err, &config) {
		return errors.New(flagNames.Replace(strings.Join(config.Problems, "; ")))
	}
	return err
}

// flagNames replaces the names of configuration fields by the names of their flags.
var flagNames = strings.NewReplacer("Database", "--database", "Ping", "--ping", "Takeover",
	"--takeover")

// hosts returns the servers of the connection string, without user and password.
func (c *connection) hosts() string {
	_, hosts, _ := strings.Cut(c.uri, "://")
	hosts = hosts[strings.LastIndex(hosts, "@")+1:] // first: a password may have a ?
	hosts, _, _ = strings.Cut(hosts, "?")
	hosts, _, _ = strings.Cut(hosts, "/")
	return catalog.Printable(hosts, 200)
}

// A store gives access to the documents of a database. It sends no heartbeats.
type store struct {
	client *mongo.Client
	*distlock.Inspector
	history  *history.Log
	database string
	never    bool // explainEmpty found no collection of locks
}

// open makes a client with at most pool connections. If pool is 0, the connection string sets the
// limit. open does no I/O.
func (c *connection) open(ctx context.Context, pool uint64, log zerolog.Logger) (*store, error) {
	client, err := mongocatalog.Dial(options.Client(), c.uri, pool, "")
	if err != nil {
		return nil, err
	}
	s := &store{client: client, database: c.database}
	if s.history, err = history.New(client, c.database, history.Options{Logger: log}); err != nil {
		return nil, err
	}
	s.Inspector, err = s.inspector(ctx, log, operator())
	return s, err
}

// inspector returns an Inspector, without I/O. The history records the given author with each break
// by the Inspector.
func (s *store) inspector(ctx context.Context, log zerolog.Logger, author string) (
	*distlock.Inspector, error) {
	return distlock.NewInspector(ctx, distlock.Config{Client: s.client, Database: s.database,
		Logger: log, Host: author, Observer: recorder(s.history, s.database)})
}

func (s *store) read(ctx context.Context, q history.Query) (
	[]history.Entry, []*distlock.MalformedError, error) {
	return history.Read(ctx, s.client, s.database, q)
}

func (s *store) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = s.history.Close(ctx) // the log has the error
	disconnect(s.client)
}

func disconnect(client *mongo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = client.Disconnect(ctx) // best effort
}

// noServer begins the text of an error for a server that does not answer. The rest of the text may
// differ between attempts.
const noServer = "no server answers at "

// explain rewrites the error for a server that cannot be reached.
func (c *connection) explain(err error) error {
	if errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		text := err.Error() // the text before the cause has the names of the packages
		if _, cause, found := strings.Cut(text, distlock.ErrUnavailable.Error()+": "); found {
			text = cause
		}
		return fmt.Errorf(noServer+"%s: %s", c.hosts(), text)
	}
	return err
}

type logging struct{ path string }

func (l *logging) flags(f *pflag.FlagSet) {
	f.StringVar(&l.path, "log", "", "append events to this `file`, one JSON object each")
}

// open opens the file for appending. Without a file the logger is silent.
func (l *logging) open() (zerolog.Logger, func(), error) {
	if l.path == "" {
		return zerolog.Nop(), func() {}, nil
	}
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return zerolog.Nop(), nil, fmt.Errorf("--log: %w", err)
	}
	logger := zerolog.New(f).Level(zerolog.InfoLevel).With().Timestamp().Logger()
	return logger, func() { _ = f.Close() }, nil // every event was written whole
}

// redact removes the users and passwords of connection strings from a text. It also removes the
// password of uri everywhere, escaped or not. Package catalog has already redacted the texts of
// servers and drivers.
func redact(text, uri string) string {
	text = catalog.RedactUserInfo(text)
	_, rest, _ := strings.Cut(uri, "://")
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return text
	}
	_, password, _ := strings.Cut(rest[:at], ":")
	forms := []string{password}
	if plain, err := url.PathUnescape(password); err == nil {
		forms = append(forms, plain)
	}
	for _, form := range forms {
		if form != "" {
			text = strings.ReplaceAll(text, form, "xxx")
		}
	}
	return text
}

// maxSearched is the maximum number of databases to search for locks. If a server has more, none is
// searched.
const maxSearched = 50

// explainEmpty describes a database without locks. It also lists other databases, because the
// operator may have named the wrong one. The second result is true if the database has no
// collection of locks, and false if the user may not list collections.
func (s *store) explainEmpty(ctx context.Context) (text string, never bool) {
	ctx, cancel := context.WithTimeout(ctx, mongocatalog.DefaultCommandTimeout)
	defer cancel()
	has, err := hasLocks(ctx, s.client, s.database)
	if err != nil || has {
		return fmt.Sprintf("database %q has no locks", s.database), false
	}
	s.never = true
	text = fmt.Sprintf("database %q has no collection %s: nothing was ever locked there", s.database,
		catalog.LocksCollection)
	if names := s.otherDatabases(ctx); len(names) > 0 {
		text += "; databases here that have one: " + strings.Join(names, ", ")
	}
	return text, true
}

// emptyText returns text, or the text of explainEmpty if the database never had locks.
func (s *store) emptyText(ctx context.Context, text string) string {
	if why, never := s.explainEmpty(ctx); never {
		return why
	}
	return text
}

// otherDatabases returns the databases except s.database that have locks, if the user may list
// databases.
func (s *store) otherDatabases(ctx context.Context) []string {
	names, err := s.client.ListDatabaseNames(ctx, bson.D{})
	if err != nil || len(names) > maxSearched {
		return nil
	}
	var found []string
	for _, name := range names {
		if name == s.database {
			continue
		}
		if has, err := hasLocks(ctx, s.client, name); err == nil && has {
			found = append(found, catalog.Printable(name, 100))
		}
	}
	return found
}

func hasLocks(ctx context.Context, client *mongo.Client, database string) (bool, error) {
	names, err := client.Database(database, options.Database().SetReadPreference(readpref.Primary())).
		ListCollectionNames(ctx, bson.D{{Key: "name", Value: catalog.LocksCollection}})
	return len(names) > 0, err
}

// missingLock returns the error for a lock that does not exist, with the likely cause.
func (s *store) missingLock(ctx context.Context, name string) error {
	err := fmt.Errorf("there is no lock %s in database %q", named(name), s.database)
	if text, never := s.explainEmpty(ctx); never {
		err = fmt.Errorf("there is no lock %s: %s", named(name), text)
	}
	return err
}
