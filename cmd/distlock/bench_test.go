package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/configserver"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// It says what it will write, measures all of it, and leaves nothing behind, also when it is
// interrupted.
func TestBench_MeasuresAndLeavesNothing(t *testing.T) {
	t.Parallel()
	// which has no other databases
	server, err := configserver.Start(t.Context(), configserver.Config{})
	assert.Must(t, err)
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	r := cli(t, "bench", "--uri", server.URI(), "--for", "100ms", "--json").want(t, 0,
		"writes into the new database")
	var got figures
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatalf("%v:\n%s", err, r.out)
	}
	if len(got.Figures) != 5 {
		t.Errorf("%d figures, want 5: %+v", len(got.Figures), got.Figures)
	}
	for _, f := range got.Figures {
		if f.Count == 0 || f.MedianMS <= 0 || f.PerSecond <= 0 || f.LeastWrites <= 0 {
			t.Errorf("figure %+v", f)
		}
	}
	var pair [2]*distlock.Manager
	for i := range pair {
		pair[i] = assert.Value(distlock.New(t.Context(), distlock.Config{URI: server.URI()}))(t)
		defer func() { assert.NoErr(t, pair[i].Close(context.Background())) }()
	}
	late := &bench{} // its time is over when it begins
	if f := assert.Value(late.handOver(t.Context(), pair))(t); f.Count == 0 {
		t.Errorf("figure %+v", f)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	out, done := start(ctx, t, "bench", "--uri", server.URI(), "--for", "10m")
	says(t, out.errs.String, "writes into")
	cancel(errors.New("enough"))
	if r := await(t, done); r.code != exitFailed {
		t.Errorf("code %d: %s", r.code, r.errOut)
	}
	names, err := newBaseOf(t, server.URI()).db.Client().ListDatabaseNames(t.Context(), bson.D{})
	if err != nil || strings.Contains(strings.Join(names, " "), "bench") {
		t.Errorf("databases %q (%v)", names, err)
	}
	cli(t, "bench", "--uri", server.URI(), "--database", "mine").want(t, exitUsage,
		"a database of its own")
	cli(t, "bench", "--uri", server.URI(), "--for", "1ms").want(t, exitUsage, "--for")
}
