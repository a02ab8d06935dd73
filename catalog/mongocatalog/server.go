package mongocatalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
)

// systemDatabases lists the databases without change streams. They have transactions only on a
// config server.
var systemDatabases = []string{"admin", "config", "local"}

// Hello is documented in [catalog.Pings]. It sends one command. The first call sends one or two
// additional commands.
func (c *Catalog) Hello(ctx context.Context) (catalog.Server, error) {
	o := on("", "find", string(catalog.OpHello))
	build := c.build.Load()
	if build == nil {
		reply, err := c.ask(ctx, o, "buildInfo")
		if err != nil && !hasCode(err, codeAPIStrict) { // apiStrict forbids buildInfo
			return catalog.Server{}, err
		}
		reply = slices.Clone(reply)
		build = &reply
		c.build.Store(build)
	}
	hello, err := c.sayHello(ctx, o)
	if err != nil {
		return catalog.Server{}, err
	}
	s := describe(*build, hello, c.database)
	if ms, ok := hello.Lookup("localTime").DateTimeOK(); ok && s.Kind == catalog.Mongos {
		c.router.set(time.UnixMilli(ms))
	}
	c.server.Store(&answeredHello{s, c.clock.Now().Mono})
	return s, nil
}

// known returns the description of the server. It calls Hello only the first time.
func (c *Catalog) known(ctx context.Context) (catalog.Server, error) {
	if s := c.server.Load(); s != nil {
		return s.Server, nil
	}
	return c.Hello(ctx)
}

// An answeredHello is the result of the latest Hello, with the time of the reply.
type answeredHello struct {
	catalog.Server
	received time.Duration // monotonic
}

// helloLasts is the time for which one Hello suffices to compute the server's clock.
const helloLasts = 10 * time.Second

// serverClock returns the server's clock, computed from the latest Hello. If that Hello is older
// than helloLasts, serverClock sends a new Hello.
func (c *Catalog) serverClock(ctx context.Context) (time.Time, error) {
	if s := c.server.Load(); s != nil {
		if passed := c.clock.Now().Mono - s.received; passed < helloLasts {
			return s.Time.Add(passed), nil
		}
	}
	s, err := c.Hello(ctx)
	return s.Time, err
}

// ListingTime returns the clock that List uses. It does no I/O. The clock is:
//   - usually the server's clock at the latest Hello;
//   - behind a mongos, the shard's clock at this process's latest ping;
//   - behind a mongos without a ping of this process, the clock of the mongos at the latest
//     Hello, for display only;
//   - zero before the first Hello.
func (c *Catalog) ListingTime() time.Time {
	switch s := c.server.Load(); {
	case s == nil:
		return time.Time{}
	case s.Kind != catalog.Mongos:
		return s.Time
	}
	if now := c.pingTime.load(); !now.IsZero() {
		return now
	}
	return c.router.load()
}

// seedTime returns the time for the first fence of a new document. Usually that is the server's
// clock in s. A mongos does not report the shard's clock. So behind a mongos, seedTime returns the
// later of two times: the shard's clock at the latest ping, and the clock of the mongos at the
// latest Hello. Both times may be too early.
func (c *Catalog) seedTime(s catalog.Server) time.Time {
	if s.Kind != catalog.Mongos {
		return s.Time
	}
	pinged, now := c.pingTime.load(), c.router.load()
	if pinged.After(now) {
		return pinged
	}
	return now
}

// sayHello sends hello, or isMaster to a server before MongoDB 4.4.2, which has no hello.
func (c *Catalog) sayHello(ctx context.Context, o operation) (bson.Raw, error) {
	if !c.oldHello.Load() {
		reply, err := c.ask(ctx, o, "hello")
		var refused mongo.CommandError
		if !errors.As(err, &refused) || refused.Code != codeCommandNotFound {
			return reply, err
		}
		c.oldHello.Store(true)
	}
	return c.ask(ctx, o, "isMaster")
}

func (c *Catalog) ask(ctx context.Context, o operation, command string) (bson.Raw, error) {
	return c.reply(ctx, o, bson.D{{Key: command, Value: int32(1)}})
}

// describe parses the replies to buildInfo and hello.
func describe(build, hello bson.Raw, database string) catalog.Server {
	s := catalog.Server{Kind: kindOf(hello), Version: text(build, "version")}
	if version, ok := build.Lookup("ferretdbVersion").StringValueOK(); ok {
		s.Kind, s.Version = catalog.FerretDB, version
	}
	if own, ok := build.Lookup("ferretdb").DocumentOK(); ok { // FerretDB 2.0 and newer
		s.Kind, s.Version = catalog.FerretDB, cmp.Or(text(own, "version"), "2")
	}
	for _, reply := range []bson.Raw{build, hello} {
		front, _ := reply.Lookup("mongodlmFront").BooleanOK()
		s.Front = s.Front || front
	}
	if s.Kind != catalog.FerretDB {
		s.Product = productOf(build, hello)
	}
	if s.Version == "" {
		s.Version = wireVersion(hello)
	}
	// The field configsvr contains the version of a protocol. Only its existence matters.
	s.ConfigServer = hello.Lookup("configsvr").Type != 0
	if ms, ok := hello.Lookup("localTime").DateTimeOK(); ok && s.Kind != catalog.Mongos {
		s.Time = time.UnixMilli(ms).UTC()
	}
	if s.Kind != catalog.Mongos {
		s.Primary = primaryOf(hello)
	}
	system := slices.Contains(systemDatabases, database)
	replicated := s.Kind == catalog.ReplicaSet || s.Kind == catalog.Mongos
	s.Transactions = replicated && (!system || s.ConfigServer)
	// A config server that is not a shard has only system databases. On a config server that is a
	// shard, the other databases have change streams.
	s.ChangeStreams = replicated && !system
	s.PipelineUpdates = s.Kind != catalog.FerretDB
	return s
}

// wireVersion returns the major version of MongoDB that belongs to the wire version in hello. It is
// used if the client is not allowed to send buildInfo, which is possible from MongoDB 5.0 on. That
// version has the wire version 13, and each later major version adds 4.
func wireVersion(hello bson.Raw) string {
	wire, _ := hello.Lookup("maxWireVersion").AsInt64OK()
	if wire < 13 {
		return ""
	}
	return fmt.Sprintf("%d.0", 5+(wire-13)/4)
}

func kindOf(hello bson.Raw) catalog.Kind {
	_, member := hello.Lookup("setName").StringValueOK()
	switch {
	case text(hello, "msg") == "isdbgrid":
		return catalog.Mongos
	case member:
		return catalog.ReplicaSet
	default:
		return catalog.Standalone
	}
}

// primaryOf returns an identifier for the election term of a primary. If the server has no terms,
// it returns an identifier of the server's process.
func primaryOf(hello bson.Raw) string {
	if id, ok := hello.Lookup("electionId").ObjectIDOK(); ok {
		version, _ := hello.Lookup("setVersion").AsInt64OK()
		return id.Hex() + "/" + strconv.FormatInt(version, 10)
	}
	if id, ok := hello.Lookup("topologyVersion", "processId").ObjectIDOK(); ok {
		return id.Hex()
	}
	return ""
}

// Supported returns nil if the server and the database are supported. Otherwise it returns an error
// with the reason and an alternative. It does no I/O.
func Supported(s catalog.Server, database string) error {
	if err := supportedProduct(s); err != nil {
		return err
	}
	switch s.Kind {
	case catalog.Memory, catalog.FerretDB:
		return nil
	case catalog.Mongos:
		if database == DefaultDatabase {
			return fmt.Errorf("database %q is not supported behind a mongos: it belongs to "+
				"the cluster; choose another database, or connect to the config servers", database)
		}
	}
	if major, minor := version(s.Version); major < 4 || major == 4 && minor < 4 {
		return fmt.Errorf("MongoDB %s is not supported: locks need 4.4 or newer; "+
			"upgrade the server or choose another one",
			catalog.Printable(s.Version, 40))
	}
	return nil
}

// version returns the first two numbers of a version such as "4.4.0-rc2" or "v1.24.2". For a part
// that is not a number, it returns zero.
func version(text string) (major, minor int) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(text, "v"), ".")
	second, _, _ := strings.Cut(rest, ".")
	major, err := strconv.Atoi(first)
	if err != nil {
		return 0, 0
	}
	minor, err = strconv.Atoi(second)
	if err != nil {
		return major, 0
	}
	return major, minor
}

// UpgradeDrops returns a warning if an upgrade of MongoDB will delete the collections of the
// catalog. Otherwise it returns "". On a config server, setFeatureCompatibilityVersion "7.0"
// drops config.lockpings, then config.locks. The warning describes the steps before the
// upgrade. UpgradeDrops also returns the warning if it cannot read the feature compatibility
// version, for example because the user lacks the privilege. It sends one command to a
// config server of MongoDB 7. For every other server it does no I/O after the first Hello.
//
// Source: dropDistLockCollections in set_feature_compatibility_version_command.cpp, from 6.2 on.
func (c *Catalog) UpgradeDrops(ctx context.Context) (warning string) {
	s, err := c.known(ctx)
	if err != nil || !s.ConfigServer || c.database != DefaultDatabase {
		return ""
	}
	feature := s.Version
	if major, _ := version(s.Version); major == 7 {
		feature = c.featureVersion(ctx)
	}
	if major, _ := version(feature); major >= 7 {
		return ""
	}
	return fmt.Sprintf("the upgrade of this config server to MongoDB 7.0 deletes %s.%s and %s.%s, "+
		"held locks included, so two processes may hold one lock until the next ping: before "+
		"setFeatureCompatibilityVersion \"7.0\" stop all processes that use them",
		DefaultDatabase, catalog.PingsCollection, DefaultDatabase, catalog.LocksCollection)
}

// featureVersion returns the server's feature compatibility version, or "" after an error.
func (c *Catalog) featureVersion(ctx context.Context) string {
	var text string
	o := on("", "getParameter", "read the feature compatibility version")
	_ = c.run(ctx, o, func(ctx context.Context) error {
		reply, err := c.db.Client().Database("admin").RunCommand(ctx, bson.D{
			{Key: "getParameter", Value: int32(1)},
			{Key: "featureCompatibilityVersion", Value: int32(1)},
		}).Raw()
		text, _ = reply.Lookup("featureCompatibilityVersion", "version").StringValueOK()
		return err
	})
	return text
}
