package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/bsontest"
)

// holdAlive writes a lock that otherProcess holds, and a recent ping with a sequence number.
func (b *base) holdAlive(name string, fence int64) {
	b.t.Helper()
	b.held(name, fence)
	b.ping(otherProcess, time.Second, bson.E{Key: "seq", Value: int64(1)})
}

// The command "distlock break" needs --yes and the fence of the present holder. Otherwise it shows
// the lock and changes nothing.
func TestBreak_OnlyWithYesAndTheRightFence(t *testing.T) {
	b := newBase(t)
	b.holdAlive("balancer", 41)
	before := b.lock("balancer")
	args := b.flags("break", "balancer", "--why", "stuck since noon")
	cli(t, append(args, "--fence", "41")...).want(t, exitFailed, "host:1:1700000000:id",
		"doing a balance round", "ping age", "--yes", "only with its next ping")
	cli(t, append(args, "--fence", "40", "--yes")...).
		want(t, exitFailed, "has fence 41, not 40", "host:1:1700000000:id")
	if after := b.lock("balancer"); !reflect.DeepEqual(after, before) {
		t.Errorf("lock is %+v, was %+v", after, before)
	}
	args = append(args, "--fence", "41", "--yes")
	cli(t, args...).want(t, 0, "is free now, fence 42", "only with its next ping")
	after := b.lock("balancer")
	if after.Held || after.Fence != 42 || after.TS == before.TS ||
		after.Why != "broken: stuck since noon" {
		t.Errorf("lock is %+v", after)
	}
	cli(t, args...).want(t, exitFailed, "free", "nothing was changed")
}

func TestBreak_NoOrMalformedLock_IsRefused(t *testing.T) {
	b := newBase(t)
	b.insert(catalog.LocksCollection, bsontest.D("_id", "odd", "state", "held"))
	b.cli("break", "none", "--fence", "1", "--why", "x", "--yes").
		want(t, exitFailed, `there is no lock "none"`)
	b.cli("break", "odd", "--fence", "1", "--why", "x", "--yes").
		want(t, exitFailed, `field "state"`, "set state to the int 0")
}

// The command "distlock break --yes" requires --session if the holder belongs to MongoDB's own lock
// manager, which does not raise the fence. Without --session, the error shows the session.
func TestBreak_ForeignHolder_NeedsTheSession(t *testing.T) {
	b := newBase(t)
	b.held("balancer", 41)
	b.ping(otherProcess, time.Second) // without seq
	before := b.lock("balancer")
	args := b.flags("break", "balancer", "--fence", "41", "--why", "stuck")
	session := before.TS.Hex()
	cli(t, append(args, "--yes")...).want(t, exitFailed, "does not raise the fence", "--session "+session)
	cli(t, args...).want(t, exitFailed, "--session "+session+" --yes")
	cli(t, append(args, "--yes", "--session", bson.NewObjectID().Hex())...).
		want(t, exitFailed, "no holder has fence 41 and session", "nothing was changed")
	if after := b.lock("balancer"); !reflect.DeepEqual(after, before) {
		t.Errorf("lock is %+v, was %+v", after, before)
	}
	cli(t, append(args, "--yes", "--session", session)...).want(t, 0, "is free now, fence 42")
}

// longAgo makes entryDoc use a fixed date instead of an age.
const longAgo = time.Duration(-1)

// entryDoc returns a holder or a waiter of the given age for a lock document.
func entryDoc(process, why string, mode catalog.Mode, limit int32, old time.Duration,
	extra ...bson.E) bson.D {
	since := clock.System().Now().Wall.Add(-old)
	if old == longAgo {
		since = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	}
	doc := bsontest.D("ts", bson.NewObjectID(), "process", process, "who", process+":go:00000001",
		"why", why, "since", bson.NewDateTimeFromTime(since))
	if mode != catalog.Exclusive {
		doc = append(doc, bson.E{Key: "mode", Value: string(mode)})
	}
	if limit > 0 {
		doc = append(doc, bson.E{Key: "limit", Value: limit})
	}
	return append(doc, extra...)
}

// share writes a lock with several holders. In mode Exclusive it writes only the first holder.
func (b *base) share(name string, mode catalog.Mode, limit int32, holders, waiters bson.A) {
	b.t.Helper()
	first, _ := holders[0].(bson.D)
	doc := bsontest.D("_id", name, "state", int32(1), "waiters", waiters)
	if mode != catalog.Exclusive {
		doc = append(doc, bson.E{Key: "mode", Value: string(mode)},
			bson.E{Key: "sharers", Value: holders})
	}
	if limit > 0 {
		doc = append(doc, bson.E{Key: "limit", Value: limit})
	}
	for _, e := range first {
		switch e.Key {
		case "since":
			doc = append(doc, bson.E{Key: "when", Value: e.Value})
		case "mode", "limit":
		default:
			doc = append(doc, e)
		}
	}
	b.insert(catalog.LocksCollection, doc)
}

// fillQueues writes a lock with permits and a shared lock, both with waiters, and a malformed lock.
func fillQueues(b *base) {
	seq := bson.E{Key: "seq", Value: int64(5)}
	fence := func(n int64) bson.E { return bson.E{Key: "fence", Value: n} }
	b.ping("alive:1:1:a", 3*time.Second, seq)
	b.ping("silent:2:1:b", 50*time.Hour, seq)
	b.insert(catalog.PingsCollection, bsontest.D("_id", "bad:5:1:e", "ping", "yesterday"))
	b.share("pool", catalog.Permit, 3,
		bson.A{entryDoc("alive:1:1:a", "x", catalog.Permit, 0, longAgo, fence(7)),
			entryDoc("silent:2:1:b", "y", catalog.Permit, 0, longAgo, fence(8))},
		bson.A{entryDoc("gone:6:1:f", "z", catalog.Permit, 3, time.Minute)})
	b.shareTable()
	b.insert(catalog.LocksCollection, bsontest.D("_id", "odd", "state", int32(0),
		"waiters", bson.A{bsontest.D("process", "p")}))
}

func (b *base) shareTable() {
	fence := func(n int64) bson.E { return bson.E{Key: "fence", Value: n} }
	b.share("table", catalog.Shared, 0,
		bson.A{entryDoc("alive:1:1:a", foreign, catalog.Shared, 0, longAgo, fence(4)),
			entryDoc("bad:5:1:e", "", catalog.Shared, 0, longAgo, fence(5))},
		bson.A{entryDoc("silent:2:1:b", foreign, catalog.Exclusive, 0, time.Hour),
			entryDoc("alive:1:1:a", "to read", catalog.Shared, 0, 5*time.Second),
			entryDoc("bad:5:1:e", "", catalog.Shared, 0, time.Second)})
}

func TestLocks_QueuesOfEveryMode_AreListed(t *testing.T) {
	b := newBase(t)
	fillQueues(b)
	golden(t, "locks-shared.golden", b.cli("locks").want(t, 0).out)
	one := b.cli("locks", "pool").want(t, 0, "gone:6:1:f", "permit of 3").out
	if strings.Contains(one, "table") || strings.Contains(one, "odd") {
		t.Errorf("others than those of the pool are shown:\n%s", one)
	}
}

func TestBreak_WithWaiters_GrantsTheNextTheLock(t *testing.T) {
	b := newBase(t)
	fillQueues(b)
	b.share("one", catalog.Exclusive, 0,
		bson.A{entryDoc("silent:2:1:b", "stuck", "", 0, time.Hour, bson.E{Key: "fence", Value: int64(41)})},
		bson.A{entryDoc("alive:1:1:a", "patience", "", 0, time.Minute)})
	args := b.flags("break", "one", "--fence", "41", "--why", "stuck")
	cli(t, args...).want(t, exitFailed, "1 queued for it, the next one", "alive:1:1:a", "patience")
	cli(t, append(args, "--yes")...).want(t, 0, "granted to the next waiter",
		"  alive:1:1:a, fence ",
		"\nA holder that is alive detects the loss only with its next ping")
	if l := b.lock("one"); !l.Held || l.Process != "alive:1:1:a" || l.Fence <= 41 ||
		len(l.Waiters) > 0 {
		t.Errorf("lock is %+v", l)
	}
}

func TestBreak_OneOfSeveralHolders_IsTakenOut(t *testing.T) {
	b := newBase(t)
	fillQueues(b)
	b.cli("break", "table", "--fence", "9", "--why", "x", "--yes").
		want(t, exitFailed, "held by 2", "none of the 2 holders has fence 9")
	b.cli("break", "table", "--fence", "5", "--why", "x", "--yes").
		want(t, 0, "no longer holds the lock; other holders still hold it")
	if l := b.lock("table"); len(l.Holders()) != 1 || len(l.Waiters) != 3 {
		t.Errorf("lock is %+v", l)
	}
}
