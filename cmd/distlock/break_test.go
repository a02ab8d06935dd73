package main

import (
	"reflect"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

func TestBreak_WithoutYes_ShowsAndChangesNothing(t *testing.T) {
	b := newBase(t)
	b.hold("balancer", 41)
	before := b.lock("balancer")
	cli(t, b.flags("break", "balancer", "--fence", "41", "--why", "stuck")...).
		want(t, exitFailed, "host:1:1700000000:id", "doing a balance round", "ping age", "--yes",
			"only with its next ping")
	if after := b.lock("balancer"); !reflect.DeepEqual(after, before) {
		t.Errorf("lock is %+v, was %+v", after, before)
	}
}

func TestBreak_WrongFence_ShowsTheStateAndChangesNothing(t *testing.T) {
	b := newBase(t)
	b.hold("balancer", 41)
	before := b.lock("balancer")
	cli(t, b.flags("break", "balancer", "--fence", "40", "--why", "stuck", "--yes")...).
		want(t, exitFailed, "has fence 41, not 40", "host:1:1700000000:id")
	if after := b.lock("balancer"); !reflect.DeepEqual(after, before) {
		t.Errorf("lock is %+v, was %+v", after, before)
	}
}

func TestBreak_RightFence_Frees(t *testing.T) {
	b := newBase(t)
	b.hold("balancer", 41)
	before := b.lock("balancer")
	args := b.flags("break", "--yes", "--fence", "41", "balancer", "--why", "stuck since noon")
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
	b.insert(catalog.LocksCollection, bson.D{
		{Key: "_id", Value: "odd"}, {Key: "state", Value: "held"},
	})
	cli(t, b.flags("break", "none", "--fence", "1", "--why", "x", "--yes")...).
		want(t, exitFailed, `there is no lock "none"`)
	cli(t, b.flags("break", "odd", "--fence", "1", "--why", "x", "--yes")...).
		want(t, exitFailed, `field "state"`, "set state to the int 0")
}
