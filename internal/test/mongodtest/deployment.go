package mongodtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const startLimit = 90 * time.Second

// Options describes the deployment to start.
type Options struct {
	// ReplicaSet is the number of members of a replica set. 0 means a standalone.
	ReplicaSet int
	// ConfigServer starts the members with --configsvr.
	ConfigServer bool
	// ShardServer starts the members with --shardsvr.
	ShardServer bool
	// Auth starts the members with --auth. A replica set also gets a key file.
	Auth bool
	// TLS makes the members accept connections with TLS, and also without TLS.
	TLS *TLS

	configDB string // option --configdb of a mongos; a mongod has none
}

// TLS names two PEM files. Authority contains the certificate of the authority. Server contains the
// certificate and the key of the server.
type TLS struct{ Authority, Server string }

// A Deployment is a standalone or a replica set. Only URI is safe for concurrent use.
type Deployment struct {
	name  string // name of the replica set; empty for a standalone
	dir   string
	nodes []*node
}

// Start starts a deployment and waits until it accepts writes. The caller must close it.
func Start(ctx context.Context, p Program, opts Options) (_ *Deployment, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	dir, err := os.MkdirTemp("", "mongodtest")
	if err != nil {
		return nil, err
	}
	d := &Deployment{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("mongodtest: %w", err), d.Close())
		}
	}()
	addrs, err := freeAddrs(max(1, opts.ReplicaSet))
	if err != nil {
		return nil, err
	}
	if opts.ReplicaSet > 0 {
		d.name = "set" + strings.TrimPrefix(filepath.Base(dir), "mongodtest")
	}
	if opts.Auth && d.name != "" {
		if err := os.WriteFile(d.keyFile(), []byte("for/these/tests/only"), 0o600); err != nil {
			return nil, err
		}
	}
	path := p.Path
	if opts.configDB != "" {
		path = p.Mongos
	}
	for i, addr := range addrs {
		folder := filepath.Join(dir, fmt.Sprint(i))
		d.nodes = append(d.nodes, &node{
			addr: addr, dir: folder, path: path, args: d.args(addr, folder, opts),
		})
	}
	if err := d.startNodes(ctx); err != nil {
		return nil, err
	}
	if d.name != "" {
		return d, d.initiate(ctx, opts)
	}
	return d, nil
}

func (d *Deployment) args(addr, folder string, opts Options) []string {
	_, port, _ := net.SplitHostPort(addr) // freeAddrs made the address
	args := []string{
		"--port", port, "--bind_ip", "127.0.0.1", "--nounixsocket",
		"--logpath", filepath.Join(folder, "log"), "--setParameter", "enableTestCommands=1",
		"--setParameter", "diagnosticDataCollectionEnabled=false",
	}
	if opts.configDB != "" {
		return append(args, "--configdb", opts.configDB)
	}
	args = append(args, "--dbpath", filepath.Join(folder, "data"), "--wiredTigerCacheSizeGB", "0.25")
	if d.name != "" {
		args = append(args, "--replSet", d.name, "--oplogSize", "128")
	}
	if opts.ConfigServer {
		args = append(args, "--configsvr")
	}
	if opts.ShardServer {
		args = append(args, "--shardsvr")
	}
	if opts.Auth {
		args = append(args, "--auth")
	}
	if opts.Auth && d.name != "" {
		args = append(args, "--keyFile", d.keyFile())
	}
	if opts.TLS != nil {
		args = append(args, "--tlsMode", "preferTLS", "--tlsCAFile", opts.TLS.Authority,
			"--tlsCertificateKeyFile", opts.TLS.Server)
	}
	return args
}

func (d *Deployment) keyFile() string { return filepath.Join(d.dir, "key") }

func (d *Deployment) startNodes(ctx context.Context) error {
	errs := make([]error, len(d.nodes))
	var started sync.WaitGroup
	for i, n := range d.nodes {
		started.Go(func() { errs[i] = n.start(ctx) })
	}
	started.Wait()
	return errors.Join(errs...)
}

func (d *Deployment) initiate(ctx context.Context, opts Options) error {
	members := bson.A{}
	for i, n := range d.nodes {
		members = append(members, bson.D{{Key: "_id", Value: i}, {Key: "host", Value: n.addr}})
	}
	config := bson.D{
		{Key: "_id", Value: d.name}, {Key: "version", Value: 1}, {Key: "members", Value: members},
		{Key: "settings", Value: bson.D{
			{Key: "heartbeatIntervalMillis", Value: 500}, {Key: "electionTimeoutMillis", Value: 10_000},
		}},
	}
	if opts.ConfigServer {
		config = append(config, bson.E{Key: "configsvr", Value: true})
	}
	first := d.nodes[0]
	if err := first.run(ctx, bson.D{{Key: "replSetInitiate", Value: config}}).Err(); err != nil {
		return fmt.Errorf("replSetInitiate: %w", err)
	}
	return until(ctx, func(ctx context.Context) error {
		if _, err := d.primary(ctx); err != nil {
			// Without this command, the first election waits for the election timeout.
			return errors.Join(err, first.run(ctx, bson.D{{Key: "replSetStepUp", Value: 1}}).Err())
		}
		status, err := first.run(ctx, bson.D{{Key: "replSetGetStatus", Value: 1}}).Raw()
		if err != nil {
			return err
		}
		ready := 0
		for i := range d.nodes {
			state, _ := status.Lookup("members", fmt.Sprint(i), "state").AsInt64OK()
			if state == 1 || state == 2 { // primary, secondary
				ready++
			}
		}
		if ready < len(d.nodes) {
			return fmt.Errorf("%d of %d members are ready", ready, len(d.nodes))
		}
		return nil
	})
}

// URI returns the connection string.
func (d *Deployment) URI() string {
	uri := "mongodb://" + strings.Join(d.addrs(), ",")
	if d.name != "" {
		return uri + "/?replicaSet=" + d.name
	}
	return uri + "/?directConnection=true"
}

func (d *Deployment) addrs() []string {
	var addrs []string
	for _, n := range d.nodes {
		addrs = append(addrs, n.addr)
	}
	return addrs
}

// Name returns the name of the replica set. It is empty for a standalone.
func (d *Deployment) Name() string { return d.name }

// seeds returns the name of the replica set and the addresses of its members, in the form that
// mongos expects.
func (d *Deployment) seeds() string { return d.name + "/" + strings.Join(d.addrs(), ",") }

// Addr returns the host and the port of a member.
func (d *Deployment) Addr(node int) string { return d.nodes[node].addr }

// Primary waits until there is a primary. It returns the index of that member, or 0 for a
// standalone.
func (d *Deployment) Primary(ctx context.Context) (int, error) {
	found := 0
	err := until(ctx, func(ctx context.Context) (err error) {
		found, err = d.primary(ctx)
		return err
	})
	return found, err
}

func (d *Deployment) primary(ctx context.Context) (int, error) {
	for i, n := range d.nodes {
		reply, err := n.run(ctx, bson.D{{Key: "isMaster", Value: 1}}).Raw()
		if err != nil {
			continue // a member that is down is not the primary
		}
		if writable, _ := reply.Lookup("ismaster").BooleanOK(); writable {
			return i, nil
		}
	}
	return 0, errors.New("no member is primary")
}

// StepDown makes the primary step down for a minute, so that another member becomes primary. In a
// replica set with one member, that member steps down for two seconds and then becomes primary
// again.
func (d *Deployment) StepDown(ctx context.Context) error {
	at, err := d.Primary(ctx)
	if err != nil {
		return err
	}
	rest, catchUp, alone := 60, 10, len(d.nodes) == 1
	if alone {
		rest, catchUp = 2, 0
	}
	return d.nodes[at].run(ctx, bson.D{
		{Key: "replSetStepDown", Value: rest}, {Key: "force", Value: alone},
		{Key: "secondaryCatchUpPeriodSecs", Value: catchUp},
	}).Err()
}

// Kill kills a member as in a crash, and waits until it has exited.
func (d *Deployment) Kill(node int) { d.nodes[node].kill() }

// Restart starts a member that was killed.
func (d *Deployment) Restart(ctx context.Context, node int) error {
	return d.nodes[node].start(ctx)
}

// Pause stops a member. Its connections stay open, but get no replies.
func (d *Deployment) Pause(node int) error { return d.nodes[node].signal("-STOP") }

// Continue continues a member after Pause.
func (d *Deployment) Continue(node int) error { return d.nodes[node].signal("-CONT") }

// Close kills all members and removes their data.
func (d *Deployment) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, n := range d.nodes {
		if n.client != nil {
			_ = n.client.Disconnect(ctx) // the server is killed next
		}
		n.kill()
	}
	return os.RemoveAll(d.dir)
}

func freeAddrs(count int) ([]string, error) {
	var addrs []string
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // all listeners stay open until every address is chosen
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}
