//go:build unix

package main

import (
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/test/assert"
)

// nested makes the arguments of a run of one lock inside of that of another. The inner one begins
// when the outer ones of all have begun that meet in a folder.
func (b *base) nested(folder, outer, inner string, met ...string) []string {
	last := append(b.flags("run", inner, "--wait"), "--")
	last = append(last, self(b.t, "env", "0")...)
	command := self(b.t, append([]string{"meet", folder, outer, strings.Join(met, ",")}, last...)...)
	return append(append(b.flags("run", outer), "--"), command...)
}

// Real processes: "run a -- run b" and "run b -- run a" wait for each other. One of the inner ones
// is told, and ends; the other one goes on.
func TestRun_NestedInACircle_OneIsToldAndTheOtherGoesOn(t *testing.T) {
	b := newBase(t)
	folder := t.TempDir()
	_, one := start(t.Context(), t, b.nested(folder, "a", "b", "a", "b")...)
	_, other := start(t.Context(), t, b.nested(folder, "b", "a", "a", "b")...)
	ends := []result{await(t, one), await(t, other)}
	slices.SortFunc(ends, func(x, y result) int { return x.code - y.code })
	ends[0].want(t, 0, "DISTLOCK_NAME=")
	ends[1].want(t, exitDeadlock, "would be a deadlock", `waits for "a"`, `waits for "b"`)
}

// A run inside of one of the same lock waits for itself.
func TestRun_NestedInItself_IsTold(t *testing.T) {
	b := newBase(t)
	_, ended := start(t.Context(), t, b.nested(t.TempDir(), "a", "a", "a")...)
	await(t, ended).want(t, exitDeadlock, "would be a deadlock", `waits for "a"`)
}

// The innermost of three knows of both around it, and of nothing else.
func TestRun_NestedTwice_InnermostKnowsOfBoth(t *testing.T) {
	b := newBase(t)
	inner := append(append(b.flags("run", "b"), "--"), self(t, "environ")...)
	command := self(t, append([]string{"distlock"}, inner...)...)
	out := cli(t, append(append(b.flags("run", "a"), "--"), command...)...).want(t, 0).out
	want := envHeld + "=" + b.lock("a").TS.Hex() + "," + b.lock("b").TS.Hex()
	if !slices.Contains(strings.Split(out, "\n"), want) {
		t.Errorf("the command does not find %s:\n%s", want, out)
	}
}

// What the environment says is anybody's to write: what is not understood is left out.
func TestInherited_OddValues_AreLeftOut(t *testing.T) {
	one, two := bson.NewObjectID(), bson.NewObjectID()
	deep := strings.Repeat("x,", 1000)
	for range 3 * maxInherited {
		deep += bson.NewObjectID().Hex() + ","
	}
	for value, want := range map[string][]bson.ObjectID{
		"": nil, ",,": nil, "mailz": nil, one.Hex() + "0": nil,
		"\x00\xff, ," + one.Hex() + "," + one.Hex() + ";," + two.Hex() + "," + one.Hex(): {one, two},
	} {
		if got := inheritedOf(value); !slices.Equal(got, want) {
			t.Errorf("of %q it takes %v, want %v", value, got, want)
		}
	}
	assert.Equal(t, len(inheritedOf(deep)), maxInherited, "%d are taken, want %d")
}
