package mongocatalog

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// Redact is the last thing that an error's text goes through.
var Redact = redact

// Failed classifies an error of the driver as that of a write or of a read.
func Failed(err error, writes bool) error {
	o := onLock("acquire", "balancer")
	o.database, o.writes = "config", writes
	return o.failed(err)
}

// DuplicateKey is what a DuplicateKey error says of its index.
var DuplicateKey = duplicateKey

// Describe understands what buildInfo and hello say.
func Describe(info, hello bson.Raw, database string) catalog.Server {
	return describe(parseBuild(info), hello, database)
}

// Commands are all commands that write, as they are sent.
func Commands(
	g catalog.Grant, from catalog.Holder, b catalog.Beat, p catalog.Ping, ts bson.ObjectID,
) map[string]bson.D {
	unnamed := from
	unnamed.Process = ""
	how := catalog.Condemnation{By: "judge", Evidence: "silent"}
	date := time.UnixMilli(5)
	return map[string]bson.D{
		"acquire":         acquisition(g).command("locks"),
		"confirm":         confirmation(g).command("locks"),
		"seed":            seeding(g.Session, 9).command("locks"),
		"overtake":        takeover(g, from).command("locks"),
		"overtakeUnnamed": takeover(g, unnamed).command("locks"),
		"release":         updateOne("locks", held(g.Session), freed()),
		"break":           breaking(g.Name, 3, ts, "stuck").command("locks"),
		"breakZero":       breaking(g.Name, 0, ts, "stuck").command("locks"),
		"ping":            beating(b).command("lockpings"),
		"condemn":         condemning(b.Process, &p, how, time.Time{}).command("lockpings"),
		"condemnNone":     condemning(b.Process, nil, how, time.Time{}).command("lockpings"),
		"condemnDated":    condemning(b.Process, &p, how, date).command("lockpings"),
		"removePing":      deletion("lockpings", alive(b.Process), 1),
	}
}

// CommandTimeout is the limit in force.
func (c *Catalog) CommandTimeout() time.Duration { return c.timeout }

// Database is the database in force.
func (c *Catalog) Database() string { return c.database }

// Begin starts a command's context.
func (c *Catalog) Begin(ctx context.Context) (context.Context, context.CancelFunc, error) {
	return c.begin(ctx)
}
