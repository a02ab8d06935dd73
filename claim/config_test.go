package claim

import (
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/test/assert"
)

func d(key string, value any) bson.D { return bson.D{{Key: key, Value: value}} }

// A contradictory Config is refused with an error that names the field.
func TestConfig_Contradictions_AreNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"filter":          {Config{Filter: d("claim.state", "ready")}, "Filter"},
		"filter by field": {Config{Filter: d("claim", nil)}, "Filter"},
		"filter in $and": {Config{Filter: d("$and", bson.A{d("$or", bson.A{d("claim.x", 1)})})},
			"Filter"},
		"filter in $expr":   {Config{Filter: d("$expr", d("$gt", bson.A{"$claim.fence", 1}))}, "Filter"},
		"filter in $where":  {Config{Filter: d("$where", "this.claim")}, "Filter has $where"},
		"filter, own field": {Config{Field: "job", Filter: d("job.x", 1)}, "Filter"},
		"filter not sent":   {Config{Filter: d("a", make(chan int))}, "Filter"},
		"field":             {Config{Field: "a.b"}, "Field"},
		"queue":             {Config{Queue: strings.Repeat("x", 201)}, "Queue"},
		"workers":           {Config{Workers: -1}, "Workers"},
		"many workers":      {Config{Workers: 1001}, "Workers"},
		"attempts":          {Config{MaxAttempts: -1}, "MaxAttempts"},
		"back-off":          {Config{Backoff: -1}, "Backoff"},
		"due":               {Config{Due: "claim.at"}, "Due"},
		"key":               {Config{Key: "_id"}, "Key"},
		"timeout":           {Config{Timeout: -1}, "Timeout"},
		"keep":              {Config{KeepDone: -1}, "KeepDone"},
	} {
		list := c.cfg.withDefaults().problems()
		if len(list) != 1 || !strings.HasPrefix(list[0], c.want) {
			t.Errorf("%s: %q, want one, of %s", name, list, c.want)
		}
	}
	for name, cfg := range map[string]Config{
		"zero":            {},
		"a field within":  {Filter: d("payload.claim", 1)},
		"a field like it": {Filter: d("claims", 1)},
		"another":         {Field: "job", Filter: d("claim", 1)},
		"an expression":   {Filter: d("$expr", d("$gt", bson.A{"$claimed", "$policy.claims"}))},
		"many workers":    {Workers: 1000},
	} {
		if list := cfg.withDefaults().problems(); list != nil {
			t.Errorf("%s: %q", name, list)
		}
	}
	_, err := New[int](t.Context(), nil, nil, Config{})
	var bad *ConfigError
	if !errors.As(err, &bad) || len(bad.Problems) != 3 || !errors.Is(err, ErrConfig) {
		t.Errorf("error is %v, want a *ConfigError with three problems", err)
	}
}

// ConfigOf returns the Due and the Key that a process has written into the lock document of its
// slot.
func TestConfigOf_Reasons(t *testing.T) {
	t.Parallel()
	odd := Config{Due: `a "b", in chains by "c"`, Key: "\n, due by "}
	for _, c := range []Config{{}, {Due: "at"}, {Key: "of.key"}, odd} {
		if got := ConfigOf(c.reason()); got.Due != c.Due || got.Key != c.Key {
			t.Errorf("%q says %q, %q", c.reason(), got.Due, got.Key)
		}
	}
	if got := ConfigOf(`reports, due by "at"`); got.Due != "" {
		t.Errorf("another reason says %q", got.Due)
	}
}

// Different queues have different lock names. Queue or Field is quoted in a lock name only if it
// contains a slash or a colon.
func TestConfig_LocksOfTwoQueues_HaveTwoNames(t *testing.T) {
	t.Parallel()
	queues := map[string]bool{}
	for _, of := range []struct {
		collection string
		cfg        Config
	}{
		{"db.x", Config{Queue: "a/b"}}, {"db.x", Config{Queue: "a", Field: "b"}},
		{"db.x", Config{Queue: "a", Field: "b/c"}}, {"db.x", Config{Queue: "a/b", Field: "c"}},
		{"db.x", Config{Queue: "y:q"}}, {"db.x:y", Config{Queue: "q"}},
		{"db.x", Config{Field: "y:q"}}, {"db.x:queue/y", Config{Queue: "q"}},
	} {
		name := of.collection + ":" + of.cfg.withDefaults().name()
		if queues[name] {
			t.Errorf("two queues are both %s", name)
		}
		queues[name] = true
	}
	plain := Config{Queue: `my "mail"`, Field: "job"}
	assert.Equal(t, plain.name(), `my "mail"/job`, "named %s, want %s")
}
