package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
)

const (
	envURI      = "MONGODLM_URI"
	envDatabase = "MONGODLM_DATABASE"
)

const (
	closeLimit = 10 * time.Second // for the cleanup at the end of a command
	maxText    = 1024             // bytes of a lock's name or a reason
)

// The default database is not the database of mongos, because a server refuses change streams and
// transactions there.
const (
	defaultDatabase = "distlock"
	mongosDatabase  = "config"
)

type connection struct{ uri, uriFile, database string }

// flags declares the flags. The help prints the default of each flag. An environment variable must
// not become a default, because it may contain a password.
func (c *connection) flags(f *pflag.FlagSet) {
	f.StringVar(&c.uri, "uri", "", "MongoDB connection `string`, which other users of this "+
		"machine can read in the\nprocess list; default: "+envURI)
	f.StringVar(&c.uriFile, "uri-file", "",
		"a `file` that contains the connection string, instead of --uri")
	f.StringVar(&c.database, "database", "", "the `name` of the database with the collections "+
		"locks and lockpings;\ndefault: "+envDatabase+", else "+defaultDatabase)
}

// withoutPassword removes the password of the connection string from a text.
func (c *connection) withoutPassword(text string) string {
	return mongocatalog.WithoutSecrets(text, c.uri)
}

// accept validates the flags. If --uri is not set, accept reads the connection string from the file
// --uri-file or from the environment.
func (c *connection) accept(given call) error {
	switch {
	case c.uri != "" && c.uriFile != "":
		return errors.New("--uri and --uri-file are mutually exclusive: omit one of them")
	case c.uriFile != "":
		if err := c.readURI(given.stdio); err != nil {
			return fmt.Errorf("--uri-file: %w", err)
		}
	case c.uri == "":
		c.uri = os.Getenv(envURI)
	}
	if c.uri == "" {
		return errors.New("--uri is missing: give a MongoDB connection string, or set " + envURI)
	}
	c.chooseDatabase()
	if !strings.HasPrefix(c.uri, "mongodb+srv://") { // mongodb+srv needs DNS for a check
		if err := options.Client().ApplyURI(c.uri).Validate(); err != nil {
			return fmt.Errorf("invalid connection string (--uri): %w", err)
		}
	}
	return problems(distlock.Config{URI: c.uri, Database: c.database}.Validate())
}

func (c *connection) chooseDatabase() {
	if c.database == "" {
		c.database = cmp.Or(os.Getenv(envDatabase), defaultDatabase)
	}
}

// readURI reads the connection string from the file --uri-file. If every user of the machine can
// read the file, readURI warns.
func (c *connection) readURI(s stdio) error {
	text, err := os.ReadFile(c.uriFile)
	if err != nil {
		return err
	}
	if c.uri = strings.TrimSpace(string(text)); c.uri == "" {
		return fmt.Errorf("%s is empty", shown(c.uriFile, 200))
	}
	info, err := os.Stat(c.uriFile)
	const everybody = 0o004
	open := err == nil && info.Mode().IsRegular() && info.Mode()&everybody != 0
	if open && runtime.GOOS != "windows" { // Windows reports every file as readable
		s.say("warning: %s can be read by every user of this machine: chmod 600",
			shown(c.uriFile, 200))
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

var flagNames = strings.NewReplacer("Database", "--database", "Ping", "--ping", "Takeover",
	"--takeover")

// hosts returns the servers of the connection string, without user and password.
func (c *connection) hosts() string {
	_, hosts, _ := strings.Cut(c.uri, "://")
	hosts = hosts[strings.LastIndex(hosts, "@")+1:] // first, because a password may contain a ?
	hosts, _, _ = strings.Cut(hosts, "?")
	hosts, _, _ = strings.Cut(hosts, "/")
	return catalog.Printable(hosts, 200)
}

// A store gives access to the documents of a database. It sends no pings.
type store struct {
	client *mongo.Client
	*distlock.Inspector
	history  *history.Log
	database string
	log      zerolog.Logger
	closeLog func()
	never    bool // emptyText found no collection of locks
}

// open returns a store that logs into the given file. The client of the store has at most pool
// connections. If pool is 0, the connection string sets the limit. open sends no command to the
// server.
func (c *connection) open(ctx context.Context, pool uint64, to logging) (*store, error) {
	s := &store{database: c.database}
	var err error
	if s.log, s.closeLog, err = to.open(); err != nil {
		return nil, err
	}
	if s.client, err = mongocatalog.Dial(options.Client(), c.uri, pool, ""); err != nil {
		return nil, err
	}
	if s.history, err = history.New(s.client, c.database, history.Options{Logger: s.log}); err != nil {
		return nil, err
	}
	s.Inspector, err = s.inspector(ctx, operator())
	return s, err
}

// inspector returns an Inspector and sends no command to the server. If the Inspector breaks a
// lock, the history records the given author.
func (s *store) inspector(ctx context.Context, author string) (*distlock.Inspector, error) {
	return distlock.NewInspector(ctx, distlock.Config{Client: s.client, Database: s.database,
		Logger: s.log, Host: author, Observer: recorder(s.history, s.database)})
}

func (s *store) read(ctx context.Context, q history.Query) (
	[]history.Entry, []*distlock.MalformedError, error) {
	return history.Read(ctx, s.client, s.database, q)
}

func (s *store) close() {
	_ = bounded(closeLimit, s.history.Close)     // the history has logged the error
	_ = bounded(closeLimit, s.client.Disconnect) // best effort
	s.closeLog()
}

// bounded calls a function that closes something, with a timeout.
func bounded(limit time.Duration, end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return end(ctx)
}

// explain returns a shorter error if the server cannot be reached. Otherwise it returns err
// unchanged.
func (c *connection) explain(err error) error {
	if errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		text := err.Error() // the text before the cause has the names of the packages
		if _, cause, found := strings.Cut(text, distlock.ErrUnavailable.Error()+": "); found {
			text = cause
		}
		return fmt.Errorf("no server answers at %s: %s", c.hosts(), text)
	}
	return err
}

type logging struct{ path string }

func (l *logging) flags(f *pflag.FlagSet) {
	f.StringVar(&l.path, "log", "", "append events to this `file`, one JSON object each")
}

// open opens the log file for appending. Without the flag --log, the logger writes nothing. The
// returned function closes the file.
func (l *logging) open() (zerolog.Logger, func(), error) {
	if l.path == "" {
		return zerolog.Nop(), func() {}, nil
	}
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return zerolog.Nop(), nil, fmt.Errorf("--log: %w", err)
	}
	logger := zerolog.New(f).Level(zerolog.InfoLevel).With().Timestamp().Logger()
	return logger, func() { _ = f.Close() }, nil // the logger buffers no event
}

// emptyText returns the given text about a database without locks. If the database has no
// collection of locks, emptyText sets s.never and returns another text, because the operator may
// have named the wrong database. If the user may not list collections, s.never stays false.
func (s *store) emptyText(ctx context.Context, text string) string {
	if !s.neverUsed(ctx) {
		return text
	}
	s.never = true
	return fmt.Sprintf("database %q has no collection %s: nothing was ever locked there; is "+
		"--database right?", s.database, catalog.LocksCollection)
}

// neverUsed reports whether the database has no collection of locks. It returns false if the user
// may not list collections.
func (s *store) neverUsed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, mongocatalog.DefaultCommandTimeout)
	defer cancel()
	names, err := s.primary(s.database).
		ListCollectionNames(ctx, bson.D{{Key: "name", Value: catalog.LocksCollection}})
	return err == nil && len(names) == 0
}

// noLocks describes a database without locks.
func (s *store) noLocks(ctx context.Context) string {
	return s.emptyText(ctx, fmt.Sprintf("database %q has no locks", s.database))
}

func (s *store) missingLock(ctx context.Context, name string) error {
	why := s.noLocks(ctx)
	if !s.never {
		return fmt.Errorf("there is no lock %s in database %q", named(name), s.database)
	}
	return fmt.Errorf("there is no lock %s: %s", named(name), why)
}
