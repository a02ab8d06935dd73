package mongocatalog

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// Failed converts an error of the driver to an error of the store. The parameter writes reports
// whether the command was a write.
func Failed(err error, writes bool) error {
	o := onLock("acquire", "balancer")
	o.database, o.writes = "config", writes
	return o.failed(err)
}

// FailedInTransaction converts an error of the driver to an error of the store, for a command in a
// transaction.
func FailedInTransaction(err error) error { return onLock("enter", "balancer").inTransaction(err) }

// AppName returns the application name of a client.
var AppName = appName

// DuplicateKey returns the name of the index in a DuplicateKey error.
var DuplicateKey = duplicateKey

// Describe parses the replies to buildInfo and hello.
var Describe = describe

// Commands returns commands, filters and pipelines, keyed by a short name.
func Commands(r catalog.Request, b catalog.Heartbeat, p catalog.Ping) map[string]bson.D {
	how := catalog.Condemnation{By: "judge", Evidence: "silent"}
	date := time.UnixMilli(5)
	later := b
	later.Mine = []time.Time{date, time.UnixMilli(6)}
	damaged, _ := bson.Marshal(bson.D{
		{Key: "rev", Value: "x"}, {Key: "state", Value: int32(1)}, {Key: "ts", Value: r.TS},
	})
	none := time.Time{}
	left := catalog.Change{Set: bson.D{{Key: "state", Value: int32(0)}}, Unset: []string{"sharers"}}
	change := catalog.Change{
		Set: bson.D{{Key: "limit", Value: int32(3)}}, Unset: []string{"mode", "waiters"},
	}
	read, _ := bson.Marshal(bson.D{
		{Key: "_id", Value: r.Name}, {Key: "state", Value: int32(0)}, {Key: "rev", Value: int64(7)},
	})
	through := passage(r, catalog.Lock{Fence: transition.Seeded}, read, time.Time{})
	one := []string{r.Name}
	return map[string]bson.D{
		"acquire":        acquisition(r).command("locks"),
		"seed":           seeding(r.Session, 9).command("locks"),
		"releaseDamaged": swap(r.Name, damaged, left).command("locks"),
		"releasePlain":   plainRelease(r.Session),
		"ping":           pinging(b).command("lockpings"),
		"pingAgain":      pinging(later).command("lockpings"),
		"condemn":        ping(transition.Condemn{Process: b.Process, Watched: &p, How: how}, none),
		"condemnNone":    ping(transition.Condemn{Process: b.Process, How: how}, none),
		"condemnDated":   ping(transition.Condemn{Process: b.Process, Watched: &p, How: how}, date),
		"witness":        sighting(p, catalog.Sight{}),
		"witnessAgain":   sighting(p, catalog.Sight{Seq: p.Seq, At: date, By: "first"}),
		"removePing":     ping(transition.RemovePing{Process: b.Process}, none),
		"timed":          {{Key: "pipeline", Value: timed(r.Name)}},
		"swap":           swap(r.Name, read, change).command("locks"),
		"swapNone":       swap(r.Name, nil, change).command("locks"),
		"passage":        through.inTransaction("locks"),
		"heldOrFree":     {{Key: "filter", Value: heldOrFree(r.Process, one, one)}},
		"heldByAny":      {{Key: "filter", Value: heldByAny([]string{r.Process})}},
		"awaited":        {{Key: "filter", Value: awaitedByAny([]string{r.Process})}},
		"observation":    {{Key: "pipeline", Value: observation(matching(queued()))}},
		"notices":        {{Key: "pipeline", Value: grantEvents("$host.1:" + r.Process)}},
	}
}

func sighting(p catalog.Ping, before catalog.Sight) bson.D {
	p.Sight = before
	seen := catalog.Sight{Seq: p.Seq, At: time.UnixMilli(6), Local: time.UnixMilli(7), By: "$me"}
	return ping(transition.Witness{Watched: p, Sight: seen}, time.Time{})
}

func ping(c catalog.PingChange, now time.Time) bson.D {
	process := c.On()
	u, _ := c.Update()
	return changingPing(process, u, now)
}

// Acquisition returns the filter of the command that acquires a free lock.
func Acquisition(r catalog.Request) bson.D { return acquisition(r).filter }

// ShortEntry returns the filter and the pipeline of the single command that enters the queue.
func ShortEntry(r catalog.Request, how catalog.EnterMode) (bson.D, bson.A) {
	m, _ := fastEntry(catalog.Server{PipelineUpdates: true}, r, how)
	return parts(m)
}

func ShortDeparture(t transition.Leave, mode catalog.Mode) (bson.D, bson.A) {
	if mode == catalog.Exclusive {
		return parts(shortDeparture(t, ""))
	}
	return parts(sharedDeparture(t.Session, mode))
}

func ShortEviction(dead catalog.Holder, evidence string) (bson.D, bson.A) {
	return parts(shortEviction(dead, evidence))
}

// Renewing returns the filter and the pipeline of the command that renews a lease.
func Renewing(r catalog.Renewal) (bson.D, bson.A) { return parts(renewing(r)) }

// Understood returns a filter that matches the documents that package catalog can parse.
func Understood() bson.D { return bson.D{whole()} }

func parts(m modification) (bson.D, bson.A) {
	pipeline, _ := m.update.(bson.A)
	return m.filter, pipeline
}

// CommandTimeout returns the time limit of each command.
func (c *Catalog) CommandTimeout() time.Duration { return c.timeout }

// Database returns the name of the database.
func (c *Catalog) Database() string { return c.database }

// Begin derives the context of a command from ctx.
func (c *Catalog) Begin(ctx context.Context) (context.Context, context.CancelFunc, error) {
	return c.begin(ctx, nil)
}
