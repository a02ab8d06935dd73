package main

import (
	"reflect"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
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
