package ui

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/census"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/clock"
)

// DefaultInterval is the default of Config.Interval.
const DefaultInterval = time.Second

// MinInterval is the shortest sensible Config.Interval.
const MinInterval = 100 * time.Millisecond

// Config configures the contents of the page and its permissions.
type Config struct {
	// Inspector reads and breaks the locks.
	Inspector *distlock.Inspector
	// Past reads the stored history, as [history.Read] does.
	Past func(context.Context, history.Query) ([]history.Entry, []*distlock.MalformedError, error)
	// Client reads loops, queues, pings and members, and changes dead rows.
	Client *mongo.Client
	// Members reads the clock of each member of a replica set. If it is nil or returns no member, the
	// page reads only the clock of the server that accepts writes.
	Members func(context.Context) ([]Member, error)
	// Void returns a text about a database without locks. The text states whether the database ever
	// had locks. Void may be nil.
	Void func(context.Context) (string, error)
	// Hosts names the servers for display. Database is the name of the database with the locks. The
	// page shows both, so they must contain no password.
	Hosts, Database string
	// Interval is the time between two reads of the locks while a page is open. The default is
	// DefaultInterval.
	Interval time.Duration
	// AllowBreak permits a browser to break locks, and to retry and remove dead rows of queues.
	AllowBreak bool
	// Tokens are the accepted tokens. If Tokens is empty, browsers need no token.
	Tokens Tokens
	// InspectorOf returns the Inspector that breaks locks for the owner of a token, so that the
	// history names the owner. If InspectorOf is nil, the page uses the field Inspector.
	InspectorOf func(owner string) *distlock.Inspector
	// Loopback makes the Server refuse requests whose Host header does not name the loopback of this
	// machine. This prevents DNS rebinding by foreign web pages.
	Loopback bool
	// Secure must be set if the page is served over TLS. Browsers then send cookies only over TLS.
	Secure bool
	// Logger logs changes that browsers make, and wrong tokens.
	Logger zerolog.Logger
}

// A Server is the http.Handler of the page. Close it after use.
type Server struct {
	cfg       Config
	clock     clock.Clock
	locks     cell[*listing]
	loops     cell[[]census.Loop]
	queues    cell[queueSummary]
	members   cell[[]Member]
	pings     cell[census.Pings]
	void      cell[string]
	dead      cell[int64]
	histories map[string]*cell[past] // by lock; guarded by mu

	mu     sync.Mutex      // guards the cells, and the start of reads against Close
	ctx    context.Context // of the reads
	cancel context.CancelFunc
	reads  sync.WaitGroup

	key     []byte // the key of tickets and cookies, new for every start
	streams chan struct{}
	wrong   chan struct{} // one element for each delayed reply to a wrong token
	handler http.Handler
}

// New returns a Server. The Server sends no command before a browser opens a page. It uses the
// clock in ctx.
func New(ctx context.Context, cfg Config) *Server {
	cfg.Interval = cmp.Or(cfg.Interval, DefaultInterval)
	s := &Server{cfg: cfg, clock: clock.From(ctx), key: []byte(rand.Text()),
		streams: make(chan struct{}, maxStreams), wrong: make(chan struct{}, maxWrong),
		locks: cell[*listing]{keep: cfg.Interval, limit: roundLimit},
		dead:  cell[int64]{keep: keepDead, limit: deadLimit},
		loops: cell[[]census.Loop]{keep: keepLoops}, queues: cell[queueSummary]{keep: keepQueues},
		members: cell[[]Member]{keep: keepMembers}, pings: cell[census.Pings]{keep: keepPings},
		void: cell[string]{keep: keepVoid}, histories: map[string]*cell[past]{}}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.handler = s.guarded(s.routes())
	return s
}

// Close stops the reads of the Server, and waits until they have ended.
func (s *Server) Close() {
	s.mu.Lock()
	s.cancel() // with mu held, so that no cell starts a further read
	s.mu.Unlock()
	s.reads.Wait()
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// problem formats an error for the page, without secrets.
func (s *Server) problem(err error) string {
	return catalog.Printable(strings.TrimPrefix(catalog.RedactUserInfo(err.Error()), "distlock: "), 500)
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, v := range views {
		pattern := "GET " + v.Path
		if v.Path == "/" {
			pattern += "{$}" // not the paths below it
		}
		mux.HandleFunc(pattern, s.page(v))
	}
	mux.HandleFunc("GET /break", s.allowChanges(s.serveBreak))
	mux.HandleFunc("POST /break", s.allowChanges(s.serveBreak))
	mux.HandleFunc("GET /dead", s.serveDead)
	mux.HandleFunc("POST /dead", s.allowChanges(s.serveDead))
	// The file server would list the files of a folder, so each file has a pattern.
	for _, file := range []string{"app.js", "icon.svg", "style.css"} {
		mux.Handle("GET /static/"+file, http.FileServerFS(static))
	}
	return mux
}
