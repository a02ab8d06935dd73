package integration_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/configserver"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/mongodtest"
)

// A deployment is a server, a replica set or a sharded cluster that all tests share.
type deployment struct {
	name  string
	setUp func(context.Context, *deployment) error

	absent error // the reason if the deployment is not available

	uri  string
	own  string                 // the database of all tests; empty if each test has a separate one
	most int                    // the limit of parallel tests, which keeps heartbeats in time
	set  *mongodtest.Deployment // the mongods; nil for embedded, uri and a sharded cluster
	over *mongodtest.Cluster    // the sharded cluster, or nil
	app  *mongo.Client          // the client for acquisitions, releases and planted documents
	beat *mongo.Client          // the client for heartbeats
	drop bool                   // close removes the database
	stop func(context.Context) error

	slots chan struct{} // limits the parallel tests

	measure sync.Once
	slowest time.Duration // the slowest of some commands, see commandLimit
}

var deployments = []*deployment{
	{name: "embedded", most: effort.Share(12), setUp: startEmbedded},
	{name: "standalone", most: 3, setUp: mongod(mongodtest.Options{})},
	{name: "replicaset", most: 3, setUp: mongod(mongodtest.Options{ReplicaSet: 3})},
	{name: "configsvr", most: 3, setUp: mongod(mongodtest.Options{ReplicaSet: 1, ConfigServer: true})},
	{name: "mongos", most: 3, setUp: behindMongos},
	{name: "sharded", most: 3, setUp: behindMongosSharded},
	{name: "uri", most: 4, setUp: connectURI},
}

// setUpLimit bounds the start of a deployment.
const setUpLimit = 2 * time.Minute

// startAll starts all deployments before the first test. A later start would delay the heartbeats
// of running tests.
var startAll = sync.OnceFunc(func() {
	var started sync.WaitGroup
	for _, d := range deployments {
		started.Go(d.start)
	}
	started.Wait()
})

// start starts the deployment and connects its clients, or sets the reason why it is absent.
func (d *deployment) start() {
	d.slots = make(chan struct{}, d.most)
	ctx, cancel := context.WithTimeout(context.Background(), setUpLimit)
	defer cancel()
	if d.absent = d.setUp(ctx, d); d.absent != nil {
		return
	}
	for _, client := range []**mongo.Client{&d.app, &d.beat} {
		if *client, d.absent = mongo.Connect(options.Client().ApplyURI(d.uri)); d.absent != nil {
			return
		}
	}
}

func (d *deployment) close(ctx context.Context) error {
	var errs []error
	if d.drop && d.app != nil {
		errs = append(errs, d.app.Database(d.own).Drop(ctx))
	}
	for _, c := range []*mongo.Client{d.app, d.beat} {
		if c != nil {
			errs = append(errs, c.Disconnect(ctx))
		}
	}
	if d.stop != nil {
		errs = append(errs, d.stop(ctx))
	}
	return errors.Join(errs...)
}

func startEmbedded(ctx context.Context, d *deployment) error {
	s, err := configserver.Start(ctx, configserver.Config{})
	if err != nil {
		return broken{err}
	}
	d.uri, d.stop = s.URI(), s.Close
	return nil
}

func mongod(opts mongodtest.Options) func(context.Context, *deployment) error {
	return func(ctx context.Context, d *deployment) error {
		p, err := mongodtest.Find(ctx)
		if err != nil {
			return err
		}
		if d.set, err = mongodtest.Start(ctx, p, opts); err != nil {
			return broken{err}
		}
		d.uri = d.set.URI()
		d.stop = func(context.Context) error { return d.set.Close() }
		d.own = databaseName()
		if opts.ConfigServer {
			d.own = "config"
		}
		return nil
	}
}

// ownCluster starts a sharded cluster at the first call: two shards and a mongos.
var ownCluster = sync.OnceValues(func() (*mongodtest.Cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setUpLimit)
	defer cancel()
	p, err := mongodtest.FindCluster(ctx)
	if err != nil {
		return nil, err
	}
	c, err := mongodtest.StartCluster(ctx, p, 2)
	if err != nil {
		return nil, broken{err}
	}
	return c, nil
})

func behindMongos(_ context.Context, d *deployment) (err error) {
	if d.over, err = ownCluster(); err != nil {
		return err
	}
	d.uri, d.own = d.over.URI(), databaseName()
	return nil
}

func behindMongosSharded(ctx context.Context, d *deployment) error {
	if err := behindMongos(ctx, d); err != nil {
		return err
	}
	d.stop = func(context.Context) error { return d.over.Close() } // mongos is closed before
	return d.arrange(ctx, d.own)
}

// arrange shards the locks and pings of a new database if the deployment is "sharded".
func (d *deployment) arrange(ctx context.Context, database string) error {
	if d.name != "sharded" {
		return nil
	}
	for _, collection := range []string{catalog.LocksCollection, catalog.PingsCollection} {
		if err := d.over.Shard(ctx, database, collection); err != nil {
			return broken{err}
		}
	}
	return nil
}

func connectURI(ctx context.Context, d *deployment) error {
	d.uri = os.Getenv("MONGODLM_TEST_URI")
	if d.uri == "" {
		return errors.New("MONGODLM_TEST_URI is not set")
	}
	client, err := mongo.Connect(options.Client().ApplyURI(d.uri))
	if err != nil {
		return broken{err}
	}
	defer func() { _ = client.Disconnect(ctx) }() // best effort
	db := client.Database(databaseName())
	err = db.CreateCollection(ctx, catalog.LocksCollection)
	var refused mongo.CommandError
	if errors.As(err, &refused) && refused.HasErrorCode(codeConfigServerRefuses) {
		d.own = "config"
		return nil
	}
	if err != nil {
		return broken{err}
	}
	d.own = db.Name()
	d.drop = true
	return nil
}

const codeConfigServerRefuses = 14037

// broken is the error of a deployment that should start but does not. Such an error fails the
// tests. Any other error of a deployment skips the tests.
type broken struct{ error }

func databaseName() string { return "distlock_it_" + bson.NewObjectID().Hex() }

// inTurn runs a test on the deployments one after the other, for tests with a high load. The caller
// must not be a parallel test.
func inTurn(t *testing.T, these []*deployment, test func(t *testing.T, w *world)) {
	t.Helper()
	for _, d := range these {
		t.Run(d.name, func(t *testing.T) { test(t, d.open(t)) })
	}
}

// forEach runs a test on all available deployments in parallel. A test that uses forEach should
// mostly wait.
func forEach(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	forThese(t, deployments, test)
}

func forThese(t *testing.T, these []*deployment, test func(t *testing.T, w *world)) {
	t.Helper()
	for _, d := range these {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			test(t, d.open(t))
		})
	}
}

func named(names ...string) []*deployment {
	return slices.DeleteFunc(slices.Clone(deployments),
		func(d *deployment) bool { return !slices.Contains(names, d.name) })
}

// need starts all deployments. If this one is not available, need fails or skips the test.
func (d *deployment) need(t testing.TB) {
	t.Helper()
	startAll()
	var bad broken
	if errors.As(d.absent, &bad) {
		t.Fatalf("%s does not start: %v", d.name, d.absent)
	}
	if d.absent != nil {
		t.Skipf("%s: %v", d.name, d.absent)
	}
}
