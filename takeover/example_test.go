package takeover_test

import (
	"fmt"
	"strings"
	"time"

	"mongodlm/takeover"
)

// A holder died at noon. A contender starts at eight in the evening and reads repeatedly.
func Example() {
	policy := takeover.Policy{
		Takeover: 15 * time.Minute, ForeignTakeover: 15 * time.Minute,
		PingInterval: 30 * time.Second, MaxClockSkew: 30 * time.Second, MaxGap: 90 * time.Second,
	}
	if err := policy.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	noon := time.Date(2011, 6, 1, 12, 0, 0, 0, time.UTC)
	evening := noon.Add(8 * time.Hour)

	var watch takeover.Observation
	for _, at := range []time.Duration{0, 45 * time.Second, 90 * time.Second} {
		var d takeover.Decision
		watch, d = watch.Look(takeover.Evidence{
			Name: "balancer", Held: true, Process: "db1:4711", TS: [12]byte{11: 1},
			HasPing: true, Ping: noon, Local: noon, Seq: 7, HasSeq: true,
			Server: evening.Add(at), Wall: evening.Add(at), Sent: at, Received: at,
		}, policy)
		fmt.Printf("%v by %q, %v to go\n", d.Verdict, d.Rule, d.Remaining)
		if d.Verdict == takeover.Take {
			fmt.Println(strings.NewReplacer(": ", ":\n  ", "; ", ";\n  ").Replace(d.Reason))
		}
	}
	// Output:
	// watch by "", 1m30s to go
	// watch by "", 45s to go
	// take by "witnesses", 0s to go
	// all clocks say that the ping of "db1:4711" is older than 15m0s:
	//   server 8h1m30s, contender 8h1m30s, holder 8h1m30s;
	//   unchanged for 1m30s of 1m30s (contender's clock 1m30s, server's clock 1m30s)
}
