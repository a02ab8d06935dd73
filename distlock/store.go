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

// heartbeatPurpose is appended to the application name of the heartbeat's own client. With that
// name an operator can exempt the heartbeat alone from the server's limits for clients.
const heartbeatPurpose = "heartbeat"

// A store is the database of a Manager. It has two clients: one for acquisitions and releases, and
// one for the heartbeat. So an application that exhausts its pool cannot starve the heartbeat.
type store struct {
	locks  catalog.Catalog
	pings  catalog.Catalog
	sent   sentCommands // set by prompt, as are life and end
	life   context.Context
	end    context.CancelCauseFunc     // ends life and the current commands
	client *mongo.Client               // client of locks; nil for another store
	hangUp func(context.Context) error // disconnects the clients that openStore made
}

// prompt returns a store whose operations return when their contexts end. The time of each command
// is at most limit.
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

// openStore opens a store with two clients, or with one client for an [Inspector].
func openStore(ctx context.Context, cfg Config, heartbeat bool) (store, error) {
	if cfg.Catalog != nil {
		return store{
			locks: cfg.Catalog, pings: cfg.Catalog, hangUp: func(context.Context) error { return nil },
		}, nil
	}
	var own []*mongo.Client
	s, err := openClients(cfg, heartbeat, &own)
	s.hangUp = func(ctx context.Context) error {
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
	if err != nil {
		return s, errors.Join(err, s.hangUp(ctx))
	}
	return s, nil
}

// openClients adds the clients that it makes to own, also if it returns an error.
func openClients(cfg Config, heartbeat bool, own *[]*mongo.Client) (s store, err error) {
	client, ping := cfg.Client, cfg.PingClient
	if client == nil {
		if client, err = dial(cfg, 0, "", own); err != nil {
			return store{}, err
		}
	}
	switch {
	case ping != nil || !heartbeat:
	case cfg.URI != "" || cfg.ClientOptions != nil:
		if ping, err = dial(cfg, heartbeatPool, heartbeatPurpose, own); err != nil {
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
	if err != nil || !heartbeat {
		return store{client: client, locks: locks, pings: locks}, err
	}
	pings, err := mongocatalog.New(ping, opts)
	return store{client: client, locks: locks, pings: pings}, err
}

// dial makes a client. The driver connects in the background. For an invalid connection string or
// option the error is a *ConfigError. Otherwise the client is added to own.
func dial(cfg Config, pool uint64, purpose string, own *[]*mongo.Client) (*mongo.Client, error) {
	opts, uri := cfg.ClientOptions, ""
	if cfg.URI != "" {
		opts, uri = options.Client(), cfg.URI
	}
	client, err := mongocatalog.Dial(opts, uri, pool, purpose)
	switch {
	case err == nil:
		*own = append(*own, client)
	case !errors.Is(err, ErrUnavailable):
		err = &ConfigError{Problems: []string{err.Error()}}
	}
	return client, err
}

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

// kinds contains the operations that [Stats] counts under the name of another operation.
var kinds = map[catalog.Op]catalog.Op{
	catalog.OpEnter: catalog.OpAcquire, catalog.OpEnterTransaction: catalog.OpAcquire,
	catalog.OpRead: catalog.OpSnapshots, catalog.OpListWaited: catalog.OpList,
	catalog.OpOldPings: catalog.OpPrune, catalog.OpPruneLocks: catalog.OpPrune,
}

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

// A command ends up to grace before its operation, so that the operation can return the error of
// the command.
const grace = 50 * time.Millisecond

// prompt returns a store that counts its operations. An operation returns when its context ends.
// Only a listing then cancels its command, because the driver closes the connection of a cancelled
// command. Any other command continues until its time limit or the end of Manager.Close. If a write
// is not answered in time, its outcome is unknown.
func prompt(
	store catalog.Catalog, life context.Context, limit time.Duration, sent sentCommands,
) catalog.Catalog {
	limit -= min(grace, limit/10)
	return catalog.Intercept(store, func(ctx context.Context, c catalog.Call, do sending) error {
		if n := sent[c.Op]; n != nil && c.Row == 0 && (ctx == nil || ctx.Err() == nil) {
			n.Add(1)
		}
		switch {
		case ctx == nil || asPromptAsTheStore(ctx, c):
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

type sending = func(context.Context) error

// asPromptAsTheStore reports whether a call is passed to the store unchanged. It returns true for
// reads of the grant stream, which may wait without a limit. It also returns true for calls in a
// transaction, because the driver allows one command of a transaction at a time.
func asPromptAsTheStore(ctx context.Context, c catalog.Call) bool {
	switch c.Op {
	case catalog.OpGrantStream, catalog.OpNextGrants, catalog.OpEnterTransaction, catalog.OpTransact:
		return true
	}
	s, ok := transition.Under(c.Transition)
	return ok && catalog.TransactionUnder(ctx, s) != nil
}

// inTime runs a command with a context of its own, and returns the error of the command. It returns
// earlier if ctx ends, or if the command does not return within grace after the end of its context.
// It calls the last argument when the command has returned. If the command panics before inTime
// returns, inTime panics.
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

func late(writes bool, cause error) error {
	outcome := catalog.ErrUnavailable
	if writes {
		outcome = catalog.ErrUnknownOutcome
	}
	return fmt.Errorf("%w: the store did not answer in time: %w", outcome, cause)
}

// endOf returns the cause of an expired context. If the Manager did not cancel the context, the
// result also matches ctx.Err().
func endOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, errTimeUp) || errors.Is(cause, ErrClosed) {
		return cause
	}
	return ended(ctx)
}
