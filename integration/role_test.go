package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/role"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/mongodtest"
)

// leastFeatures are the features that the role of these tests allows.
var leastFeatures = []role.Feature{
	role.Locks, role.Lines, role.Transactions, role.History, role.Listings, role.Breaking,
}

// leastUser starts a replica set with users. It returns the connection string of a user with one
// role. The returned function replaces the privileges of that role in the database distlock.
func leastUser(t *testing.T) (uri string, allow func([]role.Privilege)) {
	t.Helper()
	d := startSecured(t, mongodtest.Options{ReplicaSet: 1})
	d.command(role.Command("least", "distlock", role.Of("", leastFeatures...)))
	d.user("least", bson.D{field("role", "least"), field("db", "admin")})
	return d.as("least"), func(privileges []role.Privilege) {
		t.Helper()
		doc := role.Command("least", "distlock", privileges)
		doc[0].Key = "updateRole"
		d.command(doc)
		for _, name := range []string{catalog.LocksCollection, catalog.PingsCollection} {
			// The next process must create the indexes again, and needs the privilege to do so.
			assert.Must(t, d.root.Database("distlock").Collection(name).Indexes().DropAll(t.Context()))
		}
	}
}

// One process uses each allowed feature once. The result lists the errors and the logged warnings.
func life(t *testing.T, uri string) []string {
	t.Helper()
	var said []string
	say := func(err error) {
		if err != nil {
			said = append(said, err.Error())
		}
	}
	var written assert.Log
	cfg := userConfig(uri)
	cfg.Takeover, cfg.CommandTimeout = 2*time.Minute, 20*time.Second // creating indexes is slow
	cfg.Logger = zerolog.New(&written).Level(zerolog.WarnLevel)
	client := privateClient(t, options.Client().ApplyURI(uri))
	past := assert.Value(history.New(client, "distlock", history.Options{Logger: cfg.Logger}))(t)
	cfg.Observer = past
	m, err := distlock.New(t.Context(), cfg)
	if err != nil {
		say(err)
		say(past.Close(context.WithoutCancel(t.Context())))
		return said
	}
	for _, opt := range []distlock.Option{
		distlock.Why("alone"), distlock.Shared(), distlock.Permits(2), distlock.Lease(time.Minute),
	} {
		guard, err := m.Lock("job "+bson.NewObjectID().Hex()).TryLock(t.Context(), opt)
		if say(err); err == nil {
			say(guard.Verify(t.Context()))
			say(guard.InTransaction(t.Context(), func(context.Context) error { return nil }))
			say(guard.Release())
		}
	}
	say(inLine(t, m))
	inspector := m.Inspector()
	name := "broken " + bson.NewObjectID().Hex()
	if guard, err := m.Lock(name).TryLock(t.Context()); err == nil {
		_, err = inspector.Break(t.Context(), name, guard.Fence(), "a test", guard.Session())
		say(err)
		_ = guard.Release() // the lock is lost
	}
	for _, err := range inspector.Locks(t.Context()) {
		say(err)
	}
	store := assert.Value(mongocatalog.New(client, mongocatalog.Options{Database: "distlock"}))(t)
	_, err = store.Prepare(t.Context())
	say(err)
	old, err := store.OldPings(t.Context(), time.Now().Add(-time.Hour))
	say(err)
	_, err = store.Prune(t.Context(), append(old, catalog.OldPing{Process: "nobody"}))
	say(err)
	_, _, err = history.Read(t.Context(), client, "distlock", history.Query{})
	say(err)
	say(m.Close(context.WithoutCancel(t.Context())))
	say(past.Close(context.WithoutCancel(t.Context())))
	for line := range strings.Lines(written.String()) {
		expected := func(message string) bool { return strings.Contains(line, `"message":"`+message+`"`) }
		if !expected("broken by hand") && !expected("lost") && !expected("ping loop is late") {
			said = append(said, line)
		}
	}
	return said
}

// inLine makes a caller wait for a lock that another caller of the same process holds.
func inLine(t *testing.T, m *distlock.Manager) error {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	name := "line " + bson.NewObjectID().Hex()
	lock := m.Lock(name)
	guard, err := lock.TryLock(ctx)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { // ends with the release below, or with ctx
		next, err := lock.Lock(ctx)
		if err == nil {
			err = next.Release()
		}
		done <- err
	}()
	eventually(t, 20*time.Second, "the caller is queued", func() bool {
		_, line, err := m.Inspector().Holder(ctx, name)
		return err != nil || len(line) > 0
	})
	if err := guard.Release(); err != nil {
		return err
	}
	return <-done
}

// A user with the privileges of package role gets no error and no warning. If one action is
// missing, a message names the action and its collection.
func TestRole_OnARealServer_IsEnoughAndTheLeast(t *testing.T) {
	uri, allow := leastUser(t)
	if said := life(t, uri); len(said) > 0 {
		t.Fatalf("with the whole role:\n%s", strings.Join(said, "\n"))
	}
	whole := role.Of("", leastFeatures...)
	for i, p := range whole {
		for _, action := range p.Actions {
			if p.Collection != catalog.LocksCollection && p.Collection != catalog.PingsCollection &&
				p.Collection != history.Collection {
				continue // only for listings of loops
			}
			t.Run(fmt.Sprintf("%s without %s", p.Collection, action), func(t *testing.T) {
				less := slices.Clone(whole)
				at := slices.Index(p.Actions, action)
				less[i].Actions = slices.Delete(slices.Clone(p.Actions), at, at+1)
				allow(less)
				said := strings.Join(life(t, uri), "\n")
				if !strings.Contains(said, action) || !strings.Contains(said, "distlock."+p.Collection) {
					t.Errorf("no message names the action and its collection:\n%s", said)
				}
				wantNoSecret(t, said)
			})
		}
	}
}
