package study

import (
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// gen32 is the lock of 3.2 to 6.0 on config servers that are a replica set (2015-2022), one per
// process. Numbers such as 3.7 are those of the notes on its source. Where the releases differ it
// is 3.2, unless the role of the process says otherwise: config servers as in 3.4, shards as in
// 5.0.
type gen32 struct {
	p      *process
	id     string
	queue  []bson.ObjectID
	seen   map[string]seen32
	closed bool
}

// seen32 is what a contender remembers of a lock that was held, 3.8.
type seen32 struct {
	ping     bson.DateTime
	at       time.Time
	ts       bson.ObjectID
	election int
}

// The constants of 3.2.
const (
	ping32       = 30 * time.Second
	expiration32 = 15 * time.Minute
	retries32    = 2
	tries32      = 3 // of a command, where it may be sent again
	poll32       = 500 * time.Millisecond
	round32      = 10 * time.Second // pause of a caller after an error
)

func newGen32(p *process) manager {
	g := &gen32{p: p, seen: map[string]seen32{},
		id: fmt.Sprintf("%s:27017:%d:-%d", p.host, p.now().Add(-p.w.Now()).Unix(), 1957747793+p.Index)}
	switch p.role { // 3.3
	case configServer:
		g.id = "ConfigServer"
	case shard:
		g.id = "shard-" + p.host
	}
	return g
}

// start is 3.9: a config server that becomes primary frees all locks of config servers (G3-7).
func (g *gen32) start() bool {
	if g.p.role == configServer {
		if _, err := g.p.update(Release, locks, bson.D{{Key: "process", Value: g.id}},
			bson.D{{Key: "state", Value: int32(0)}}, false); err != nil {
			return false
		}
	}
	g.p.Go(g.task)
	return true
}

// task is doTask, 3.6: a ping by its own clock, then the queue of unlocks.
func (g *gen32) task() {
	for !g.closed {
		_, _ = g.p.findAndModify(Ping, pings, []bson.D{{{Key: "_id", Value: g.id}}},
			bson.D{{Key: "ping", Value: date(g.p.now())}}, true) // a failure is logged
		queue := g.queue
		g.queue = nil
		for _, ts := range queue {
			if g.closed {
				return // the rest is forgotten (G3-10)
			}
			if g.unlock(ts) != nil {
				g.queue = append(g.queue, ts)
			}
		}
		g.p.sleep(ping32)
	}
}

// unlock is the command of 3.5. One that matches nothing is as good.
func (g *gen32) unlock(ts bson.ObjectID) error {
	var err error
	for range tries32 {
		if _, err = g.p.findAndModify(Release, locks, []bson.D{{{Key: "ts", Value: ts}}},
			bson.D{{Key: "state", Value: int32(0)}}, false); err == nil {
			return nil
		}
	}
	return err
}

// lock calls lock of 3.7, again after an error, until patience is over.
func (g *gen32) lock(name string, patience time.Duration) (tenure, error) {
	end := g.p.w.Now() + patience
	for {
		h, err := g.lockOnce(name, end-g.p.w.Now())
		if err == nil || errors.Is(err, errHeld) || g.p.w.Now()+round32 > end {
			return h, err
		}
		g.p.sleep(round32)
	}
}

// lockOnce is lock, 3.7.
func (g *gen32) lockOnce(name string, wait time.Duration) (tenure, error) {
	end, retries := g.p.w.Now()+wait, 0
	for {
		ts := g.session() // 1
		d, err := g.grab(name, ts)
		if err == nil { // 2
			return &held32{g, d.text("_id"), ts}, nil
		}
		if !errors.Is(err, errHeld) {
			if retries < retries32 && g.unlock(ts) == nil { // 3 (G3-1)
				retries++
				continue
			}
			g.queue = append(g.queue, ts) // 4
			return nil, err
		}
		found, err := g.p.findOne(locks, name) // 5
		if err != nil {
			return nil, err
		}
		if found != nil {
			expired, err := g.expired(found) // 6
			if err != nil {
				return nil, err
			}
			if expired || g.p.role == shard && found.id("ts") == ts {
				d, err := g.overtake(name, ts, found.id("ts"))
				if err != nil {
					g.queue = append(g.queue, ts)
					return nil, err
				}
				if d != nil {
					return &held32{g, name, ts}, nil
				}
			}
		}
		if g.p.w.Now() >= end { // 7
			return nil, errHeld
		}
		retries = 0
		g.p.sleep(min(poll32, end-g.p.w.Now()))
	}
}

// session is 3.3: new for each attempt; in 5.0 one for all shards (G3-11).
func (g *gen32) session() bson.ObjectID {
	if g.p.role == shard {
		return bson.ObjectID{2}
	}
	return g.p.w.objectID(g.p)
}

func (g *gen32) fields(ts bson.ObjectID) bson.D {
	return bson.D{{Key: "ts", Value: ts}, {Key: "state", Value: held}, {Key: "who", Value: g.id + ":conn1"},
		{Key: "process", Value: g.id}, {Key: "when", Value: date(g.p.now())}, {Key: "why", Value: "work"}}
}

// grab is grabLock, 3.5.
func (g *gen32) grab(name string, ts bson.ObjectID) (document, error) {
	d, err := g.p.findAndModify(Grab, locks,
		[]bson.D{{{Key: "_id", Value: name}, {Key: "state", Value: int32(0)}}}, g.fields(ts), true)
	if errors.Is(err, errDuplicate) {
		return nil, errHeld
	}
	return d, err
}

// overtake is overtakeLock, 3.5: it names the session, and asks no ping again (G3-4).
func (g *gen32) overtake(name string, ts, current bson.ObjectID) (document, error) {
	return g.p.findAndModify(Take, locks, []bson.D{
		{{Key: "_id", Value: name}, {Key: "state", Value: int32(0)}},
		{{Key: "_id", Value: name}, {Key: "ts", Value: current}},
	}, g.fields(ts), false)
}

// expired is canOvertakeLock, later isLockExpired, 3.8.
func (g *gen32) expired(d document) (bool, error) {
	ping, err := g.p.findOne(pings, d.text("process")) // 1: none counts as 0
	if err != nil {
		return false, err
	}
	before := g.p.w.Now() // by a timer
	server, election, err := g.p.serverStatus()
	if err != nil {
		return false, err
	}
	delay := (g.p.w.Now() - before) / 2 // 2
	name := d.text("_id")
	was, some := g.seen[name]
	now := seen32{ping.ping(), server, d.id("ts"), election}
	if !some {
		g.seen[name] = now // 3: without the delay
		return false, nil
	}
	now.at = server.Add(-delay) // 4
	if was.ping != now.ping || was.ts != now.ts || was.election != now.election {
		g.seen[name] = now // 5
		return false, nil
	}
	return now.at.Sub(was.at) >= expiration32, nil // 6, 7
}

// close is shutDown, 3.6: the ping is removed, the queue is forgotten.
func (g *gen32) close() {
	g.closed = true
	_ = g.p.remove(Clean, pings, "{_id: "+g.id+"}", func(d document) bool { return d.text("_id") == g.id })
}

// held32 is a lock that was got.
type held32 struct {
	g    *gen32
	name string
	ts   bson.ObjectID
}

func (h *held32) session() string { return h.g.id + " " + h.ts.Hex() }
func (h *held32) fence() int64    { return 0 } // G3-3
func (h *held32) trusted() error  { return nil }
func (h *held32) proceed() error  { return nil }

// check is checkStatus, 3.9: whether a document with its ts is there, held or not (G3-3).
func (h *held32) check() error {
	found, err := h.g.p.find(Read, locks, bson.D{{Key: "ts", Value: h.ts}})
	if err == nil && len(found) == 0 {
		err = errLost
	}
	return err
}

// release is unlock, 3.9: a failure goes into the queue.
func (h *held32) release() error {
	err := h.g.unlock(h.ts)
	if err != nil {
		h.g.queue = append(h.g.queue, h.ts)
	}
	return err
}
