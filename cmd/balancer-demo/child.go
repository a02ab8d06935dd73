package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/adapters/prometheus"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/cmd/balancer-demo/internal/balancer"
	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/cmd/internal/scrape"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/singleton"
)

// closeLimit bounds each step of the cleanup at the end of a process.
const closeLimit = 10 * time.Second

// beBalancer implements the command "balancer". It writes the events of the balancer to out, one
// JSON object per line.
func beBalancer(ctx context.Context, o opts, in io.Reader, out, errOut io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.untilEOF {
		go func() { // ends with the process
			_, _ = io.Copy(io.Discard, in)
			cancel()
		}()
	}
	collector, err := prometheus.New(prometheus.Options{})
	if err != nil {
		return err
	}
	if o.metrics != "" {
		url, end, err := scrape.Start(ctx, o.metrics, collector)
		if err != nil {
			return err
		}
		defer end()
		fmt.Fprintf(errOut, "metrics are at %s\n", url)
	}
	meta, err := openMetadata(ctx, o)
	if err != nil {
		return err
	}
	defer meta.close()
	past, err := history.New(meta.client, o.database, history.Options{})
	if err != nil {
		return err
	}
	settings, err := singleton.NewStore(meta.client.Database(o.database))
	if err != nil {
		return err
	}
	b := balancer.New(o.number, meta.Store, out)
	manager, err := distlock.New(ctx, distlock.Config{URI: o.uri, Database: o.database, Ping: o.ping,
		Takeover: o.takeover, Observer: distlock.Observers(b, collector, past)})
	if err != nil {
		return err
	}
	collector.Watch(manager)
	err = b.Run(ctx, manager, settings)
	end, cancelEnd := context.WithTimeout(context.Background(), closeLimit)
	defer cancelEnd()
	return errors.Join(err, past.Close(end))
}

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
	m.catalog, err = mongocatalog.New(client, mongocatalog.Options{Database: o.database})
	if err == nil {
		server, asked := m.catalog.Hello(ctx)
		if err = asked; err == nil {
			err = mongocatalog.Supported(server, o.database)
		}
		m.Store = balancer.NewStore(client, o.database, server.ConfigServer)
	}
	if err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *metadata) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = m.client.Disconnect(ctx) // best effort
}

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
		fmt.Fprintf(out, "database %s already has a cluster\n", o.database)
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
	defer file.Close() // Close cannot lose data of a read
	return cluster.Load(path, file)
}
