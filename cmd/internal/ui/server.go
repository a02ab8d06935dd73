package ui

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/clock"
)

// DefaultInterval is the time between two rounds while somebody looks.
const DefaultInterval = time.Second

// MinInterval bounds how short an interval may be.
const MinInterval = 100 * time.Millisecond

// Config says what the page shows and what it may do.
type Config struct {
	// Inspector reads the locks, and breaks them.
	Inspector *distlock.Inspector
	// Past is the written history; nil when there is none.
	Past *history.Log
	// Client is the way to what is not locks: loops, queues, members. Nil: the pages of these say that
	// they cannot be shown.
	Client *mongo.Client
	// Members asks each member of a replica set for its clock; nil, or no member: only the server
	// that answers to writes is asked.
	Members func(context.Context) ([]Member, error)
	// Hosts and Database say in the page where the locks are. No password.
	Hosts, Database string
	// Interval is the time between two rounds; default DefaultInterval.
	Interval time.Duration
	// AllowBreak lets locks be broken.
	AllowBreak bool
	// Token is asked of every browser; empty: none is.
	Token string
	// Loopback refuses requests for another host than this machine's loopback, which a page of
	// somebody else's could send once a name of its own leads here.
	Loopback bool
	// Secure is set where TLS is spoken: cookies are sent by TLS only.
	Secure bool
	// Redact takes secrets out of a text; nil takes none.
	Redact func(string) string
	// Logger hears of breaks.
	Logger zerolog.Logger
}

// A Server is the page, an http.Handler. Close it when it is no longer used.
type Server struct {
	cfg     Config
	clock   clock.Clock
	poller  *poller
	loops   cell[[]loopRow]
	queues  cell[[]queueRow]
	members cell[[]Member]
	pings   cell[[]catalog.Ping]
	pasts   pasts
	key     []byte // of tokens and cookies; a new one for every start
	streams chan struct{}
	handler http.Handler
}

// New returns the page. It asks the server nothing before somebody looks. A clock that ctx carries
// is the Server's.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Inspector == nil {
		return nil, errors.New("ui: Inspector is nil: make one with distlock.NewInspector")
	}
	if cfg.Interval == 0 {
		cfg.Interval = DefaultInterval
	}
	if cfg.Interval < MinInterval {
		return nil, fmt.Errorf("ui: Interval is %v, must be at least %v", cfg.Interval, MinInterval)
	}
	if cfg.Redact == nil {
		cfg.Redact = func(s string) string { return s }
	}
	s := &Server{cfg: cfg, clock: clock.From(ctx), key: []byte(rand.Text()),
		streams: make(chan struct{}, maxStreams)}
	s.poller = newPoller(ctx, cfg.Interval, func(ctx context.Context) (*listing, error) {
		return read(ctx, cfg.Inspector)
	}, s.problem)
	s.loops = cell[[]loopRow]{clock: s.clock, keep: keepLoops, read: s.readLoops}
	s.queues = cell[[]queueRow]{clock: s.clock, keep: keepQueues, read: s.readQueues}
	s.members = cell[[]Member]{clock: s.clock, keep: keepMembers, read: s.readMembers}
	s.pings = cell[[]catalog.Ping]{clock: s.clock, keep: keepPings, read: s.readPings}
	s.pasts = pasts{s: s, by: map[string]*cell[past]{}}
	s.handler = s.guarded(s.routes())
	return s, nil
}

// Close ends the rounds and waits for the one that is under way.
func (s *Server) Close() { s.poller.close() }

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// problem words an error for the page, without secrets.
func (s *Server) problem(err error) string {
	return short500(strings.TrimPrefix(s.cfg.Redact(err.Error()), "distlock: "))
}

// routes are the pages.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, v := range views {
		mux.HandleFunc("GET "+v.path, s.page(v))
	}
	mux.HandleFunc("GET /break", s.askBreak)
	mux.HandleFunc("POST /break", s.doBreak)
	mux.Handle("GET /static/", http.FileServerFS(static))
	return mux
}
