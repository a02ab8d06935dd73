package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/configserver"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

// notice is a writer that cancels a context when the program prints the name of its database.
type notice struct {
	strings.Builder
	cancel context.CancelCauseFunc
}

func (n *notice) Write(text []byte) (int, error) {
	if n.cancel != nil {
		n.cancel(errors.New("enough"))
	}
	return n.Builder.Write(text)
}

// The program prints its target and its measurements. It leaves no database on the server, even if
// it is interrupted.
func TestBench_MeasuresAndLeavesNothing(t *testing.T) {
	t.Parallel()
	server, err := configserver.Start(t.Context(), configserver.Config{})
	assert.Must(t, err)
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	call := func(ctx context.Context, cancel context.CancelCauseFunc, want int, args ...string) (
		out, errOut string) {
		t.Helper()
		var o strings.Builder
		e := &notice{cancel: cancel}
		if code := run(ctx, append([]string{"--uri", server.URI()}, args...), &o, e); code != want {
			t.Errorf("%q: exit code %d, want %d: %s", args, code, want, e)
		}
		return o.String(), e.String()
	}
	out, errOut := call(t.Context(), nil, 0, "--for", "100ms", "--json")
	var got figures
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Figures) != 5 ||
		!strings.Contains(errOut, "writes to the new database") {
		t.Fatalf("%v: %d figures, want 5:\n%s\n%s", err, len(got.Figures), out, errOut)
	}
	for _, f := range got.Figures {
		if f.Count == 0 || f.MedianMS <= 0 || f.PerSecond <= 0 || f.LeastWrites <= 0 {
			t.Errorf("figure %+v", f)
		}
	}
	out, _ = call(t.Context(), nil, 0, "--for", "100ms")
	if !strings.Contains(out, "LEAST WRITES") || strings.Count(out, "\n") != 7 {
		t.Errorf("printed:\n%s", out)
	}
	late := &bench{} // measures once, because its duration is 0
	for i := range late.pair {
		late.pair[i] = assert.Value(distlock.New(t.Context(), distlock.Config{URI: server.URI()}))(t)
		defer func() { assert.NoErr(t, late.pair[i].Close(context.Background())) }()
	}
	if f := assert.Value(late.handOver(t.Context()))(t); f.Count == 0 {
		t.Errorf("figure %+v", f)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	call(ctx, cancel, 1, "--for", "10m")
	client := assert.Value(mongo.Connect(options.Client().ApplyURI(server.URI())))(t)
	defer func() { _ = client.Disconnect(context.Background()) }()
	names, err := client.ListDatabaseNames(t.Context(), bson.D{})
	if err != nil || strings.Contains(strings.Join(names, " "), "bench") {
		t.Errorf("databases %q (%v)", names, err)
	}
	for _, wrong := range [][]string{{"--for", "1ms"}, {"--database", "mine"}, {"word"}} {
		call(t.Context(), nil, 2, wrong...)
	}
}

// The error for a bad connection string does not contain its password.
func TestBench_WrongURI_PasswordIsNotShown(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{"mongodb://u:s3cret@h:port", "mongodb://u:s3cret@h/?w=%zz",
		"mongodb://u:s3cret@127.0.0.1:1/?serverSelectionTimeoutMS=50"} {
		var out, errOut strings.Builder
		if code := run(t.Context(), []string{"--for", "100ms", "--uri", uri}, &out, &errOut); code == 0 ||
			strings.Contains(out.String()+errOut.String(), "s3cret") {
			t.Errorf("%d: %s%s", code, out.String(), errOut.String())
		}
	}
}
