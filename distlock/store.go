package distlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/catalog/transition"
)

// heartbeatPool is the size of the heartbeat's own connection pool: one connection for the ping,
// one for the other commands of the heartbeat.
const heartbeatPool = 2

// heartbeatPurpose is appended to the application name of the heartbeat's own client, so that an
// operator can exempt only the pings from the server's limits for clients.
const heartbeatPurpose = "heartbeat"

// A store is the database of a Manager. It has two clients, one for acquisitions and releases, one
// for the heartbeat. So an application that exhausts its pool cannot starve the heartbeat.
type store struct {
	locks  catalog.Catalog
	pings  catalog.Catalog
	sent   sentCommands // set by prompt, as are life and end
	life   context.Context
	end    context.CancelCauseFunc // ends life and the current commands
	client *mongo.Client           // client of locks; nil for another store
	hangUp func(context.Context) error
}

// prompt makes the operations of a store return when their contexts end, and bounds their commands.
func (s store) prompt(limit time.Duration) store {
	s.sent = newSentCommands()
	s.life, s.end = context.WithCancelCause(context.Background())
	locks := prompt(s.locks, s.life, limit, s.sent)
	pings := locks
	if s.pings != s.locks {
		pings = prompt(s.pings, s.life, limit, s.sent)
	}
	s.locks, s.pings = locks, pings
	return s
}

// openStore opens a store with both clients, or with one client for an [Inspector].
func openStore(ctx context.Context, cfg Config, heartbeat bool) (store, error) {
	if cfg.Catalog != nil {
		return store{
			locks: cfg.Catalog, pings: cfg.Catalog, hangUp: func(context.Context) error { return nil },
		}, nil
	}
	var own []*mongo.Client
	hangUp := func(ctx context.Context) error {
		// Without a reachable server, Disconnect waits until ctx ends.
		ctx, cancel := context.WithTimeout(ctx, cfg.CommandTimeout)
		defer cancel()
		var errs []error
		for _, c := range own {
			if err := c.Disconnect(ctx); err != nil {
				errs = append(errs, fmt.Errorf("disconnect: %w", err))
			}
		}
		return errors.Join(errs...)
	}
	dial := func(pool uint64, purpose string) (*mongo.Client, error) {
		c, err := dial(cfg, pool, purpose)
		if err == nil {
			own = append(own, c)
		}
		return c, err
	}
	s, err := openClients(cfg, heartbeat, dial)
	s.hangUp = hangUp
	if err != nil {
		return s, errors.Join(err, hangUp(ctx))
	}
	return s, nil
}

func openClients(
	cfg Config, heartbeat bool, dial func(pool uint64, purpose string) (*mongo.Client, error),
) (s store, err error) {
	client, ping := cfg.Client, cfg.PingClient
	if client == nil {
		if client, err = dial(0, ""); err != nil {
			return store{}, err
		}
	}
	switch {
	case ping != nil || !heartbeat:
	case cfg.URI != "" || cfg.ClientOptions != nil:
		if ping, err = dial(heartbeatPool, heartbeatPurpose); err != nil {
			return store{}, err
		}
	default:
		ping = client
		cfg.Logger.Warn().Msg("the heartbeat shares the application's connection pool; " +
			"set Config.PingClient, URI or ClientOptions to give it its own")
	}
	opts := mongocatalog.Options{
		Database: cfg.Database, CommandTimeout: cfg.CommandTimeout, PingTime: new(mongocatalog.PingTime),
		Viewer: !heartbeat,
	}
	locks, err := mongocatalog.New(client, opts)
	if err != nil {
		return store{}, err
	}
	if !heartbeat {
		return store{client: client, locks: locks, pings: locks}, nil
	}
	pings, err := mongocatalog.New(ping, opts)
	if err != nil {
		return store{}, err
	}
	return store{client: client, locks: locks, pings: pings}, nil
}

// dial makes a client. The driver connects in the background. An invalid connection string or
// option is a *ConfigError.
func dial(cfg Config, pool uint64, purpose string) (*mongo.Client, error) {
	opts, uri := cfg.ClientOptions, ""
	if cfg.URI != "" {
		opts, uri = options.Client(), cfg.URI
	}
	client, err := mongocatalog.Dial(opts, uri, pool, purpose)
	if err != nil && !errors.Is(err, ErrUnavailable) {
		err = &ConfigError{Problems: []string{err.Error()}}
	}
	return client, err
}

// sentCommands counts the commands that a process has sent, by operation.
type sentCommands map[catalog.Op]*atomic.Int64

func newSentCommands() sentCommands {
	c := sentCommands{}
	for _, op := range catalog.Ops() {
		if op != catalog.OpNextGrants {
			c[op] = new(atomic.Int64)
		}
	}
	return c
}

// kinds maps the operations that [Stats] counts under another name.
var kinds = map[catalog.Op]catalog.Op{
	catalog.OpEnter: catalog.OpAcquire, catalog.OpEnterTransaction: catalog.OpAcquire,
	catalog.OpRead: catalog.OpSnapshots, catalog.OpListWaited: catalog.OpList,
	catalog.OpOldPings: catalog.OpPrune, catalog.OpPruneLocks: catalog.OpPrune,
}

// byKind returns the counts in the form of [Stats].
func (c sentCommands) byKind() map[string]int64 {
	sent := make(map[string]int64, len(c))
	for op, n := range c {
		if kind, other := kinds[op]; other {
			op = kind
		}
		sent[string(op)] += n.Load()
	}
	return sent
}

// grace is the longest time between the end of a command and the limit of its operation. The
// command's own error can arrive in that time.
const grace = 50 * time.Millisecond

// prompt returns a store that counts its operations. An operation returns when its context ends,
// but its command continues: a cancelled command closes its connection. The command ends when limit
// has passed, or when the context life ends. A write that is not answered in time has an unknown
// outcome.
func prompt(
	store catalog.Catalog, life context.Context, limit time.Duration, sent sentCommands,
) catalog.Catalog {
	limit -= min(grace, limit/10)
	return catalog.Intercept(store, func(ctx context.Context, c catalog.Call, do sending) error {
		if n := sent[c.Op]; n != nil && c.Row == 0 && (ctx == nil || ctx.Err() == nil) {
			n.Add(1)
		}
		switch {
		case ctx == nil || ctx.Done() == nil || asPromptAsTheStore(ctx, c):
			return do(ctx)
		case c.Op == catalog.OpList || c.Op == catalog.OpListWaited: // each row is a part of the listing
			return inTime(ctx, ctx, false, do, func() {})
		}
		if ctx.Err() != nil {
			return fmt.Errorf("not sent: %w", endOf(ctx))
		}
		command, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		stop := context.AfterFunc(life, cancel)
		return inTime(ctx, command, c.Op.Writes(), func(ctx context.Context) error {
			err := do(ctx)
			known := errors.Is(err, catalog.ErrUnavailable) || errors.Is(err, catalog.ErrUnknownOutcome)
			if err != nil && ctx.Err() != nil && !known {
				return late(c.Op.Writes(), err)
			}
			return err
		}, func() { stop(); cancel() })
	})
}

// A sending is a function that carries out a call.
type sending = func(context.Context) error

// asPromptAsTheStore reports whether a call goes to the store unchanged. Such a call reads the
// stream of grants, and may wait without a limit. Or it is part of a transaction, in which the
// driver allows one command at a time.
func asPromptAsTheStore(ctx context.Context, c catalog.Call) bool {
	switch c.Op {
	case catalog.OpGrantStream, catalog.OpNextGrants, catalog.OpEnterTransaction, catalog.OpTransact:
		return true
	}
	s, ok := transition.Under(c.Transition)
	return ok && catalog.TransactionUnder(ctx, s) != nil
}

// inTime runs do(command) and returns its error. It returns earlier if ctx ends, or if the context
// command has ended and do has not returned within grace after that. The function end is called
// when do has returned. If do panics in time, inTime panics.
func inTime(ctx, command context.Context, writes bool, do sending, end func()) error {
	if ctx.Err() != nil {
		end()
		return fmt.Errorf("not sent: %w", endOf(ctx))
	}
	type result struct {
		err    error
		panics any
	}
	done := make(chan result, 1)
	go func() { // ends with the command
		defer end()
		var r result
		defer func() {
			r.panics = recover()
			done <- r
		}()
		r.err = do(command)
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		select {
		case r = <-done: // at the same instant
		default:
			return late(writes, endOf(ctx))
		}
	case <-command.Done():
		graceful, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		select {
		case r = <-done:
		case <-graceful.Done(): // the store ignores its context
			return late(writes, endOf(command))
		}
	}
	if r.panics != nil {
		panic(r.panics)
	}
	return r.err
}

// late returns the error of a command that was not answered in time.
func late(writes bool, cause error) error {
	outcome := catalog.ErrUnavailable
	if writes {
		outcome = catalog.ErrUnknownOutcome
	}
	return fmt.Errorf("%w: the store did not answer in time: %w", outcome, cause)
}

// endOf returns the cause of an expired context if the Manager cancelled it, else its error.
func endOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, errTimeUp) || errors.Is(cause, ErrClosed) {
		return cause
	}
	return ended(ctx)
}
