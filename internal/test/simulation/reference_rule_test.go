package simulation

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// If no rule allows a takeover, the report explains what each rule requires. Its figures are from
// the latest snapshot, which follows the longest watch.
func TestReference_Refusal_SaysWhatEachRuleWanted(t *testing.T) {
	t.Parallel()
	timing := Timing{Ping: 10 * time.Second, Takeover: time.Minute, MaxGap: 30 * time.Second}
	held := catalog.Lock{Name: "x", Held: true, Process: "p", TS: bson.ObjectID{11: 1}}
	origin := time.UnixMilli(1_700_000_000_000)
	var looks []seen
	for at := time.Duration(0); at <= 24*time.Second; at += 12 * time.Second {
		ping := &catalog.Ping{
			Process: "p", Seq: 1, HasSeq: true, At: origin, Local: origin, Interval: timing.Ping,
		}
		now := origin.Add(40*time.Second + at)
		looks = append(looks, seen{
			Snapshot: catalog.Snapshot{
				Lock: &held, ServerTime: now, Pings: map[string]catalog.PingState{"p": {Ping: ping}},
			},
			name: "x", sent: at, received: at, wall: now,
		})
	}
	from := catalog.Holder{Session: catalog.Session{Name: "x", TS: held.TS}, Process: "p"}
	why := reference(looks, from, time.Minute, timing)
	for _, want := range []string{
		"the watch rule wants the same picture for 1m0s, its looks show it for 24s",
		"less than three ping intervals, 30s, and no sight",
	} {
		if !strings.Contains(why, want) {
			t.Errorf("want %q in %q", want, why)
		}
	}
}
