package view_test

import (
	"strings"
	"testing"
	"time"

	"mongodlm/cmd/balancer-demo/internal/view"
)

func TestPlain_Events_AreOneLineEach(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		event view.Event
		want  string
	}{
		"of the demo": {
			view.Event{At: 1500 * time.Millisecond, Kind: "kill", Text: "SIGKILL to #1"},
			"1.5s demo kill: SIGKILL to #1",
		},
		"with facts": {
			view.Event{At: 83 * time.Second, Balancer: 2, Kind: "takeover",
				Text: "took the lock from #1", Fields: []view.Field{
					{Key: "fence", Value: "42"}, {Key: "evidence", Value: "ping 3.1s old"},
					{Key: "empty", Value: ""}, {Key: "process", Value: "host:4712:1460419200:5f0c"},
				}},
			`1m23s #2 takeover: took the lock from #1 fence=42 evidence="ping 3.1s old" ` +
				`empty="" process=host:4712:1460419200:5f0c`,
		},
		"with foreign text": {
			view.Event{Balancer: 1, Kind: "move\n", Text: "to \x1b[2J",
				Fields: []view.Field{{Key: "a\r", Value: "b=\"c\"\x07"}}},
			`0ms #1 move\u000a: to \u001b[2J a\u000d="b=\"c\"\a"`,
		},
		"with a long value": {
			view.Event{Kind: "x", Text: "y",
				Fields: []view.Field{{Key: "k", Value: strings.Repeat("a", 500)}}},
			"0ms demo x: y k=" + strings.Repeat("a", 400) + "...",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := view.Plain(test.event); got != test.want {
				t.Errorf("want %s\n got %s", test.want, got)
			}
		})
	}
}
