package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/claim"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

type bench struct {
	uri, database string
	hosts         string // the servers of the connection string
	each          time.Duration
	json          bool

	client *mongo.Client
	pair   [2]*distlock.Manager
	rows   int // the maximum number of claimed rows
}

// The maximum numbers of claimed rows. The number for an embedded server is lower, because the cost
// of its commands grows with the collection.
const (
	benchRows    = 1000
	embeddedRows = 200
)

// benchPatience is the timeout of one command. It is long, so that bench can measure a slow server.
const benchPatience = 30 * time.Second

// undo calls a function that closes or removes something, even after the end of ctx.
func undo(ctx context.Context, end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchPatience)
	defer cancel()
	return end(ctx)
}

// run measures the server and prints the results. Finally it drops its database, even after the end
// of ctx.
func (v *bench) run(ctx context.Context, out, errOut io.Writer) error {
	var err error
	if v.client, err = mongocatalog.Dial(options.Client(), v.uri, 0, ""); err != nil {
		return err
	}
	defer func() { _ = undo(ctx, v.client.Disconnect) }() // best effort
	fmt.Fprintf(errOut, "bench: writes to the new database %s on %s for about %v "+
		"(locks and at most %d rows), then drops it\n", v.database, v.hosts, 6*v.each, 2*benchRows)
	figures, err := v.measure(ctx)
	if dropped := undo(ctx, v.client.Database(v.database).Drop); dropped != nil {
		err = errors.Join(err, fmt.Errorf("the database %s was not dropped, drop it manually: %w",
			v.database, dropped))
	}
	if err != nil {
		return err
	}
	if v.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(figures)
	}
	return figures.print(out)
}

type figure struct {
	What      string  `json:"what"`
	Count     int     `json:"count"`
	PerSecond float64 `json:"perSecond"`
	MedianMS  float64 `json:"medianMS"` // of one operation; the mean where several run at a time
	// LeastWrites is MedianMS divided by the MedianMS of the measurement "least write".
	LeastWrites float64 `json:"leastWrites"`
}

type figures struct {
	Server  string   `json:"server"`
	Figures []figure `json:"figures"`
}

func (v *bench) measure(ctx context.Context) (figures, error) {
	asked, err := mongocatalog.New(v.client, mongocatalog.Options{Database: v.database})
	if err != nil {
		return figures{}, err
	}
	server, err := asked.Hello(ctx)
	if err != nil {
		return figures{}, err
	}
	if server.ConfigServer {
		return figures{}, errors.New("a config server does not allow new databases; measure a " +
			"similar replica set")
	}
	if v.rows = benchRows; server.Kind == catalog.FerretDB {
		v.rows = embeddedRows
	}
	f := figures{Server: fmt.Sprintf("%s, %s %s", v.hosts, server.Kind,
		catalog.Printable(server.Version, 40))}
	for i := range v.pair {
		v.pair[i], err = distlock.New(ctx,
			distlock.Config{URI: v.uri, Database: v.database, CommandTimeout: benchPatience})
		if err != nil {
			return f, err
		}
		defer func() { _ = undo(ctx, v.pair[i].Close) }() // run drops the database
	}
	for _, one := range []func(context.Context) (figure, error){
		v.roundTrip, v.leastWrite, v.lock, v.handOver, v.claims} {
		got, err := one(ctx)
		if err != nil {
			return f, fmt.Errorf("%s: %w", got.What, err)
		}
		f.Figures = append(f.Figures, got)
	}
	for i := range f.Figures {
		f.Figures[i].LeastWrites = f.Figures[i].MedianMS / f.Figures[1].MedianMS
	}
	return f, nil
}

// repeat calls the given function repeatedly for the time v.each, at least once, and measures each
// call.
func (v *bench) repeat(ctx context.Context, what string, step func(context.Context) error) (
	figure, error,
) {
	clk := clock.From(ctx)
	var took []time.Duration
	begun := clk.Now().Mono
	for at := begun; at-begun < v.each || len(took) == 0; {
		if err := step(ctx); err != nil {
			return figure{What: what}, err
		}
		now := clk.Now().Mono
		took, at = append(took, now-at), now
	}
	total := clk.Now().Mono - begun
	slices.Sort(took)
	return figureOf(what, len(took), total, took[len(took)/2]), nil
}

func figureOf(what string, n int, total, each time.Duration) figure {
	return figure{What: what, Count: n, PerSecond: float64(n) / max(total, 1).Seconds(),
		MedianMS: float64(max(each, 1)) / float64(time.Millisecond)}
}

func (v *bench) roundTrip(ctx context.Context) (figure, error) {
	return v.repeat(ctx, "round trip", func(ctx context.Context) error {
		return v.client.Database(v.database).RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err()
	})
}

// leastWrite measures one update of one document, with the write concern of a lock.
func (v *bench) leastWrite(ctx context.Context) (figure, error) {
	journaled := true
	on := v.client.Database(v.database).Collection("least", options.Collection().
		SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journaled}))
	return v.repeat(ctx, "least write", func(ctx context.Context) error {
		_, err := on.UpdateByID(ctx, "x", bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}},
			options.UpdateOne().SetUpsert(true))
		return err
	})
}

func (v *bench) lock(ctx context.Context) (figure, error) {
	return v.repeat(ctx, "lock and release", func(ctx context.Context) error {
		guard, err := v.pair[0].Lock("bench").TryLock(ctx)
		if err != nil {
			return err
		}
		return guard.Release()
	})
}

// handOver measures the hand-over of a lock. Each release by one Manager grants the lock to
// another.
func (v *bench) handOver(ctx context.Context) (figure, error) {
	const what = "hand-over"
	clk := clock.From(ctx)
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	var n atomic.Int64
	var errs [2]error
	var both sync.WaitGroup
	begun := clk.Now().Mono
	for i, m := range v.pair {
		both.Go(func() {
			defer cancel()
			for turns := 0; turns == 0 || clk.Now().Mono-begun < v.each; turns++ {
				guard, err := m.Lock("turns").Lock(limited)
				if err != nil {
					if limited.Err() == nil || ctx.Err() != nil {
						errs[i] = err
					}
					return
				}
				n.Add(1)
				if errs[i] = guard.Release(); errs[i] != nil {
					return
				}
			}
		})
	}
	both.Wait()
	if err := cmp.Or(errs[0], errs[1]); err != nil {
		return figure{What: what}, err
	}
	total := clk.Now().Mono - begun
	return figureOf(what, int(n.Load()), total, total/time.Duration(max(1, n.Load()))), nil
}

// claims measures 16 workers that claim and complete rows.
func (v *bench) claims(ctx context.Context) (figure, error) {
	f := figure{What: "claim and done"}
	rows := v.client.Database(v.database).Collection("rows")
	q, err := claim.New[bson.M](ctx, v.pair[0], rows, claim.Config{Workers: 16})
	if err != nil {
		return f, err
	}
	docs := make([]any, v.rows)
	for i := range docs {
		docs[i] = bson.D{{Key: "_id", Value: i}}
	}
	if _, err := rows.InsertMany(ctx, docs); err != nil {
		return f, err
	}
	clk := clock.From(ctx)
	limited, cancel := context.WithTimeout(ctx, v.each+time.Minute)
	defer cancel()
	var n, last atomic.Int64
	begun := clk.Now().Mono
	err = q.Run(limited, func(context.Context, *claim.Row[bson.M]) error {
		now := clk.Now().Mono - begun
		last.Store(int64(now))
		if n.Add(1) == int64(v.rows) || now > v.each {
			cancel()
		}
		return nil
	})
	err = errors.Join(err, q.Close(context.WithoutCancel(ctx)), context.Cause(ctx))
	total := time.Duration(last.Load())
	return figureOf(f.What, int(n.Load()), total, total/time.Duration(max(1, n.Load()))), err
}

func (f figures) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\nWHAT\tPER SECOND\tEACH\tLEAST WRITES\tCOUNT\n", f.Server)
	for _, one := range f.Figures {
		fmt.Fprintf(w, "%s\t%.0f\t%.2fms\t%.2f\t%d\n", one.What, one.PerSecond, one.MedianMS,
			one.LeastWrites, one.Count)
	}
	return w.Flush()
}
