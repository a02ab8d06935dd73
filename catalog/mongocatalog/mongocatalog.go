package mongocatalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// Defaults of Options.
const (
	DefaultDatabase       = "config"
	DefaultCommandTimeout = 5 * time.Second
)

// Options are the settings of a Catalog. The zero value is usable.
type Options struct {
	// Database is the name of the database that contains the collections locks and lockpings; default
	// "config".
	Database string
	// CommandTimeout is the time limit of every command; default 5 s.
	CommandTimeout time.Duration
	// PingTime stores the shard's clock at the latest ping. Behind a mongos, Snapshots uses this time
	// instead of the clock of the mongos. All catalogs of a process should share one PingTime. The
	// default is a new PingTime.
	PingTime *PingTime
	// Viewer is set for a process that does not ping and makes no decisions about locks. Behind a
	// mongos, the ServerTime of its snapshots is the clock of the mongos.
	Viewer bool
}

// A PingTime stores the server's clock at the latest ping of this process. The zero value is ready
// to use. A PingTime is safe for concurrent use.
type PingTime struct{ ms atomic.Int64 }

func (p *PingTime) set(t time.Time) { p.ms.Store(t.UnixMilli()) }

// load returns the stored time, or the zero time before the first ping.
func (p *PingTime) load() time.Time {
	ms := p.ms.Load()
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// A Catalog is the store in a MongoDB database. It is safe for concurrent use. The caller of New
// owns the client.
type Catalog struct {
	database string
	timeout  time.Duration
	pingTime *PingTime
	viewer   bool
	clock    clock.Clock

	db    *mongo.Database
	locks *mongo.Collection
	pings *mongo.Collection

	build  atomic.Pointer[bson.Raw]      // the reply of buildInfo; the command is sent once
	server atomic.Pointer[answeredHello] // the latest Hello

	oldHello atomic.Bool // the server supports only isMaster
	router   PingTime    // the clock of a mongos at the latest Hello

	used usedNames
}

var _ catalog.Catalog = (*Catalog)(nil)

// New returns a store that uses client. It does no I/O. It returns an error for a nil client and
// for a negative timeout.
func New(client *mongo.Client, opts Options) (*Catalog, error) {
	if client == nil {
		return nil, errors.New("mongocatalog: client is nil")
	}
	if opts.CommandTimeout < 0 {
		return nil, fmt.Errorf("mongocatalog: CommandTimeout is %v; it must not be negative",
			opts.CommandTimeout)
	}
	opts.Database = cmp.Or(opts.Database, DefaultDatabase)
	opts.PingTime = cmp.Or(opts.PingTime, new(PingTime))
	db := client.Database(opts.Database, options.Database().
		SetReadConcern(readconcern.Majority()).
		SetWriteConcern(writeconcern.Majority()).
		SetReadPreference(readpref.Primary()))
	return &Catalog{
		database: opts.Database,
		timeout:  cmp.Or(opts.CommandTimeout, DefaultCommandTimeout),
		pingTime: opts.PingTime,
		viewer:   opts.Viewer,
		clock:    clock.System(),
		db:       db,
		locks:    db.Collection(catalog.LocksCollection),
		pings:    db.Collection(catalog.PingsCollection),
	}, nil
}

// begin returns the context of a command. The context ends after the timeout. If session is not
// nil, the command joins the session's transaction. If session is nil, the command joins no
// transaction, even if ctx carries a session. If ctx is done, begin returns an error.
func (c *Catalog) begin(ctx context.Context, session *mongo.Session) (
	context.Context, context.CancelFunc, error,
) {
	if ctx == nil {
		return nil, nil, errors.New("context is nil")
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(mongo.NewSessionContext(ctx, session), c.timeout)
	return ctx, cancel, nil
}

// run calls the given function, which sends one command, and classifies its error.
func (c *Catalog) run(ctx context.Context, o operation, do func(ctx context.Context) error) error {
	o.database = c.database
	ctx, cancel, err := c.begin(ctx, o.session)
	if err != nil {
		return o.wrap(err)
	}
	defer cancel()
	if err := do(ctx); err != nil {
		return o.failed(err)
	}
	return nil
}

func (c *Catalog) write(ctx context.Context, o operation, command bson.D) (bson.Raw, error) {
	o.writes = true
	return c.reply(ctx, o, command)
}

func (c *Catalog) reply(ctx context.Context, o operation, command bson.D) (
	reply bson.Raw, err error,
) {
	err = c.run(ctx, o, func(ctx context.Context) (err error) {
		reply, err = c.db.RunCommand(ctx, command).Raw()
		return err
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// modify sends one findAndModify and returns the document after the change. If no document matched,
// it returns nil.
func (c *Catalog) modify(ctx context.Context, o operation, m modification) (bson.Raw, error) {
	command := m.command(o.collection)
	if o.session != nil {
		command = m.inTransaction(o.collection)
	}
	reply, err := c.write(ctx, o, command)
	if err != nil {
		return nil, err
	}
	doc, ok := reply.Lookup("value").DocumentOK()
	if !ok {
		return nil, nil
	}
	return doc, nil
}

// each opens a cursor and calls row for each of its documents, until row returns false. Each
// command of the cursor has its own time limit. A document is valid only during the call.
func (c *Catalog) each(
	ctx context.Context, o operation, open func(context.Context) (*mongo.Cursor, error),
	row func(doc bson.Raw) (more bool),
) error {
	var cursor *mongo.Cursor
	defer func() {
		if cursor != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
			defer cancel()
			_ = cursor.Close(ctx) // the server closes an open cursor after its timeout
		}
	}()
	for {
		more := false
		err := c.run(ctx, o, func(ctx context.Context) (err error) {
			if cursor == nil {
				if cursor, err = open(ctx); err != nil {
					return err
				}
			}
			more = cursor.Next(ctx)
			return cursor.Err()
		})
		if err != nil || !more || !row(cursor.Current) {
			return err
		}
	}
}

// find calls the given function with every document that matches the filter. A document is valid
// only during the call.
func (c *Catalog) find(
	ctx context.Context, o operation, from *mongo.Collection, filter bson.D,
	find *options.FindOptionsBuilder, collect func(raw bson.Raw),
) error {
	open := func(ctx context.Context) (*mongo.Cursor, error) { return from.Find(ctx, filter, find) }
	return c.each(ctx, o, open, func(raw bson.Raw) bool {
		collect(raw)
		return true
	})
}
