package simulation

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// Outside is what happens in the world beside the processes.
type Outside struct{ w *world }

// At lets something happen at an instant.
func (o *Outside) At(at time.Duration, do func()) { o.w.After(at, do) }

// Put plants a document.
func (o *Outside) Put(collection, id string, doc bson.D) {
	if err := o.w.store.put(collection, id, doc); err != nil {
		o.w.judge.violated("setup", "%v", err)
	}
}

// ForeignPing pings as a mongos would.
func (o *Outside) ForeignPing(process string) {
	o.w.log.add("foreign %s pings", process)
	o.Put(catalog.PingsCollection, process, bson.D{
		{Key: "_id", Value: process}, {Key: "ping", Value: o.w.ServerNow()},
	})
	o.w.judge.foreignLives(process)
}

// ForeignLock writes a held lock as a mongos would.
func (o *Outside) ForeignLock(name, process string) {
	o.w.log.add("foreign %s holds %q", process, name)
	ts := bson.NewObjectID()
	o.Put(catalog.LocksCollection, name, bson.D{
		{Key: "_id", Value: name}, {Key: "state", Value: int32(2)}, {Key: "process", Value: process},
		{Key: "ts", Value: ts}, {Key: "who", Value: process + ":conn1:1"}, {Key: "why", Value: "foreign"},
		{Key: "when", Value: o.w.ServerNow()},
	})
	o.w.judge.foreignLives(process)
}

// ForeignRelease frees a lock as a mongos would: it knows nothing of a line.
func (o *Outside) ForeignRelease(name string) {
	o.w.log.add("foreign release of %q", name)
	err := o.w.store.edit(name, func(doc bson.D) bson.D {
		return append(without(doc, "state"), bson.E{Key: "state", Value: int32(0)})
	})
	if err != nil {
		o.w.judge.violated("setup", "%v", err)
	}
	o.w.store.note(catalog.LocksCollection, name, o.w.Server.Document(catalog.LocksCollection, name))
}
