package distlock

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/clock"
)

// heartbeatPool is the size of the heartbeat's own connection pool: one connection for the ping,
// one for the chores.
const heartbeatPool = 2

// store is where a Manager keeps its documents: one way in for acquiring and releasing, one for
// the heartbeat, so that an application that exhausts its pool cannot starve the heartbeat.
type store struct {
	locks  catalog.Catalog
	pings  catalog.Catalog
	sent   *sentCommands // set by prompt
	hangUp func(context.Context) error
}

// prompt makes the commands of a store end with their contexts.
func (s store) prompt(c clock.Clock) store {
	s.sent = new(sentCommands)
	locks := prompt(s.locks, c, s.sent)
	pings := locks
	if s.pings != s.locks {
		pings = prompt(s.pings, c, s.sent)
	}
	s.locks, s.pings = locks, pings
	return s
}

// openStore opens both ways in, or for an [Inspector] the first one twice.
func openStore(ctx context.Context, cfg Config, heartbeat bool) (store, error) {
	if cfg.Catalog != nil {
		return store{
			locks: cfg.Catalog, pings: cfg.Catalog, hangUp: func(context.Context) error { return nil },
		}, nil
	}
	var own []*mongo.Client
	hangUp := func(ctx context.Context) error {
		// The driver says goodbye to the server, and looks for it as long as it may.
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
	dial := func(pool uint64) (*mongo.Client, error) {
		c, err := dial(cfg, pool)
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

func openClients(cfg Config, heartbeat bool, dial func(pool uint64) (*mongo.Client, error)) (store, error) {
	var err error
	client, ping := cfg.Client, cfg.PingClient
	if client == nil {
		if client, err = dial(0); err != nil {
			return store{}, err
		}
	}
	switch {
	case ping != nil || !heartbeat:
	case cfg.URI != "" || cfg.ClientOptions != nil:
		if ping, err = dial(heartbeatPool); err != nil {
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
		return store{locks: locks, pings: locks}, nil
	}
	pings, err := mongocatalog.New(ping, opts)
	if err != nil {
		return store{}, err
	}
	return store{locks: locks, pings: pings}, nil
}

// dial makes a client. It does no I/O beyond what the driver does in the background. What it finds
// wrong with the connection string or the options is a *ConfigError.
func dial(cfg Config, pool uint64) (*mongo.Client, error) {
	opts, uri := cfg.ClientOptions, ""
	if cfg.URI != "" {
		opts, uri = options.Client(), cfg.URI
	}
	client, err := mongocatalog.Dial(opts, uri, pool)
	if err != nil && !errors.Is(err, ErrUnavailable) {
		err = &ConfigError{Problems: []string{err.Error()}}
	}
	return client, err
}
