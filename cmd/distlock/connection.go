package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
)

// envURI is the environment variable that stands in for --uri.
const envURI = "MONGODLM_URI"

// closeLimit bounds how long the end of a command may take that has nothing left to lose.
const closeLimit = 10 * time.Second

// connection is the flags that say where the locks are.
type connection struct{ uri, database string }

// flags declares them. The environment is no default of the flag: the help would print it, password
// and all.
func (c *connection) flags(f *flag.FlagSet) {
	f.StringVar(&c.uri, "uri", "", "connection `string` of the MongoDB; default: "+envURI)
	f.StringVar(&c.database, "database", distlock.DefaultDatabase,
		"the database that holds the collections locks and lockpings")
}

func (c *connection) secrets() string { return c.uri }

// accept fills in the environment and checks both.
func (c *connection) accept() error {
	if c.uri == "" {
		c.uri = os.Getenv(envURI)
	}
	if c.uri == "" {
		return errors.New("--uri is missing: give the connection string of a MongoDB, or set " + envURI)
	}
	if !strings.HasPrefix(c.uri, "mongodb+srv://") { // which could not be checked without DNS
		if err := options.Client().ApplyURI(c.uri).Validate(); err != nil {
			return fmt.Errorf("--uri: %w", err)
		}
	}
	return problems(distlock.Config{URI: c.uri, Database: c.database}.Validate())
}

// problems turns the error of a configuration into one that speaks of flags.
func problems(err error) error {
	var config *distlock.ConfigError
	if errors.As(err, &config) {
		return errors.New(strings.Join(config.Problems, "; "))
	}
	return err
}

// hosts names the servers of the connection string, without the user.
func (c *connection) hosts() string {
	_, hosts, _ := strings.Cut(c.uri, "://")
	hosts, _, _ = strings.Cut(hosts, "?")
	hosts = hosts[strings.LastIndex(hosts, "@")+1:]
	hosts, _, _ = strings.Cut(hosts, "/")
	return catalog.Printable(hosts, 200)
}

// store is an open way to the documents, without a heartbeat.
type store struct {
	client *mongo.Client
	*mongocatalog.Catalog
}

// open makes a client of at most pool connections; 0 leaves that to the connection string. No I/O.
func (c *connection) open(pool uint64) (*store, error) {
	client, err := mongocatalog.Dial(options.Client(), c.uri, pool)
	if err != nil {
		return nil, err
	}
	opts := mongocatalog.Options{Database: c.database}
	locks, err := mongocatalog.New(client, opts)
	if err != nil {
		return nil, err
	}
	return &store{client, locks}, nil
}

func (s *store) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = s.client.Disconnect(ctx) // nothing is left to lose
}

// hello asks the server who it is.
func (c *connection) hello(ctx context.Context, s *store) (catalog.Server, error) {
	server, err := s.Hello(ctx)
	return server, c.explain(err)
}

// explain says in a word more that nobody answers.
func (c *connection) explain(err error) error {
	if errors.Is(err, catalog.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no server answers at %s, database %s: %w", c.hosts(), c.database, err)
	}
	return err
}

// logging is the flag that says where events go.
type logging struct{ path string }

func (l *logging) flags(f *flag.FlagSet) {
	f.StringVar(&l.path, "log", "", "append events to this `file`, one JSON object each")
}

// open appends to the file; without one it is silent.
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

var userInfo = regexp.MustCompile(`(mongodb(?:\+srv)?://)[^\s"']*@`)

// redact takes user information of connection strings out of a text, and the password of uri in
// every form.
func redact(text, uri string) string {
	text = userInfo.ReplaceAllString(text, "${1}xxx@")
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
