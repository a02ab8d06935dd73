package study_test

import (
	"strings"
	"testing"

	"mongodlm/study/internal/study"
)

// othersShapes is how the locks of others fail: Redlock, etcd, ZooKeeper. A write on its way is
// refused by who has a fence; who is cut off and not told works on.
var othersShapes = map[string]string{
	"pause":              "- - -",
	"write-on-its-way":   "stale - -",
	"cut-off":            "- - two",
	"clock-steps-back":   "- - -",
	"server-clock-steps": "- - -",
}

// It tries to break the models of others: they come out as what is published of them says, and play
// nothing else.
func TestOthers_FailAsTheirSourcesSay(t *testing.T) {
	t.Parallel()
	cases, others := study.OthersCases(), study.Others()
	plays, err := study.Run(t.Context(), cases, others)
	if err != nil || len(cases) != len(othersShapes) {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for i, c := range cases {
		var got []string
		for _, p := range plays[i*len(others) : (i+1)*len(others)] {
			got = append(got, shape(p.Outcome))
			if p.Outcome.Idle > 0 && p.Outcome.None || p.Outcome.TwoTrusted > 0 &&
				p.Generation != "zookeeper" && p.Outcome.Two > 0 {
				t.Errorf("%s by %s: %v", c.Name, p.Generation, p.Outcome.Parts())
			}
		}
		if s := strings.Join(got, " "); s != othersShapes[c.Name] {
			t.Errorf("%s: %s, want %s", c.Name, s, othersShapes[c.Name])
		}
	}
	for _, name := range []string{"write-on-its-way etcd", "write-on-its-way zookeeper",
		"cut-off zookeeper"} {
		of, generation, _ := strings.Cut(name, " ")
		if p := set(t, of, generation); p.Outcome.Fenced == 0 {
			t.Errorf("%s: no fence has refused anything: %v", name, p.Outcome.Parts())
		}
	}
	for _, generation := range []string{"redlock", "etcd", "zookeeper"} {
		inOrder(t, rows(t, "pause", generation), "B has the lock", "B has released")
	}
	if p := set(t, "two-force", "etcd"); !strings.Contains(p.Outcome.Not, "cut-off") {
		t.Errorf("two-force by etcd: %+v", p.Outcome)
	}
}
