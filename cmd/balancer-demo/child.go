package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/adapters/prometheus"
	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/cmd/balancer-demo/internal/balancer"
	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/cmd/internal/scrape"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/singleton"
)

// closeLimit is how long a terminating process may take to release its lock.
const closeLimit = 10 * time.Second

// beBalancer runs one balancer process. It writes its events as lines of JSON.
func beBalancer(ctx context.Context, o opts, in io.Reader, out, errOut io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.untilEOF {
		go func() { // ends with the process
			_, _ = io.Copy(io.Discard, in)
			cancel()
		}()
	}
	b := balancer.New(o.number, teller(out))
	collector, err := prometheus.New(prometheus.Options{})
	if err != nil {
		return err
	}
	if o.metrics != "" {
		page, err := scrape.Start(ctx, o.metrics, collector)
		if err != nil {
			return err
		}
		defer page.Close()
		fmt.Fprintf(errOut, "metrics are at %s\n", page.URL())
	}
	cfg := distlock.Config{URI: o.uri, Database: o.database, Ping: o.ping, Takeover: o.takeover,
		Poll: o.poll(), PollMax: o.poll()}
	meta, err := openMetadata(ctx, o)
	if err != nil {
		return err
	}
	defer meta.close()
	past, err := history.New(meta.client, o.database, history.Options{})
	if err != nil {
		return err
	}
	cfg.Observer = distlock.Observers(b, collector, past)
	manager, err := distlock.New(ctx, cfg)
	if err != nil {
		return err
	}
	collector.Watch(manager)
	settings, err := singleton.NewStore(meta.client.Database(o.database))
	if err != nil {
		return err
	}
	err = b.Run(ctx, manager, meta.Store, settings)
	end, cancelEnd := context.WithTimeout(context.Background(), closeLimit)
	defer cancelEnd()
	return errors.Join(err, manager.Close(end), past.Close(end))
}

// teller returns a function that writes events as lines of JSON and ignores write errors.
func teller(out io.Writer) func(balancer.Event) {
	var mu sync.Mutex // keeps lines whole
	enc := json.NewEncoder(out)
	return func(e balancer.Event) {
		mu.Lock()
		defer mu.Unlock()
		_ = enc.Encode(e)
	}
}

// metadata gives access to the cluster's metadata and to the lock documents.
type metadata struct {
	*balancer.Store
	client  *mongo.Client
	catalog *mongocatalog.Catalog
}

func openMetadata(ctx context.Context, o opts) (*metadata, error) {
	client, err := mongocatalog.Dial(options.Client(), o.uri, 0, "")
	if err != nil {
		return nil, err
	}
	m := &metadata{client: client}
	var server catalog.Server
	where := mongocatalog.Options{Database: o.database}
	if m.catalog, err = mongocatalog.New(client, where); err == nil {
		server, err = m.catalog.Hello(ctx)
	}
	if err == nil {
		err = mongocatalog.Supported(server, o.database)
	}
	if err != nil {
		return nil, errors.Join(err, client.Disconnect(ctx))
	}
	m.Store = balancer.NewStore(client, o.database, server.ConfigServer)
	return m, nil
}

func (m *metadata) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = m.client.Disconnect(ctx) // best effort
}

// load implements "balancer-demo load", which only loads the cluster.
func load(ctx context.Context, o opts, out io.Writer) error {
	cluster, err := readCluster(o.cluster)
	if err != nil {
		return err
	}
	m, err := openMetadata(ctx, o)
	if err != nil {
		return err
	}
	defer m.close()
	err = m.Load(ctx, cluster)
	if errors.Is(err, balancer.ErrNotEmpty) && o.ifEmpty {
		fmt.Fprintf(out, "database %s holds a cluster already\n", o.database)
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "loaded %d shards, %d collections, %d chunks into database %s\n",
		len(cluster.Shards), len(cluster.Collections), len(cluster.Chunks), o.database)
	return nil
}

func readCluster(path string) (cluster.Cluster, error) {
	if path == "" {
		return cluster.Sample()
	}
	file, err := os.Open(path)
	if err != nil {
		return cluster.Cluster{}, err
	}
	defer file.Close() // the file was only read
	return cluster.Load(path, file)
}
