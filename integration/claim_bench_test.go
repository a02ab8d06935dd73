package integration_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/claim"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

var claimRows = flag.Int("claimrows", 5000, "how many rows BenchmarkClaim works on in each row of its table")

// BenchmarkClaim works on rows that cost nothing with 16 workers: items a second, commands an item,
// and how many items are done in the time of the least write. Duplicates and losses are counted,
// and are no figures.
func BenchmarkClaim(b *testing.B) {
	for _, d := range named("replicaset", "standalone", "embedded", "uri") {
		b.Run(d.name, func(b *testing.B) {
			w := d.open(b)
			for _, batch := range []int{1, 100} {
				w.part(b, fmt.Sprintf("batch=%d", batch), func(b *testing.B) { w.timeClaims(b, batch) })
			}
		})
	}
}

func (w *world) timeClaims(b *testing.B, batch int) {
	n := *claimRows
	if w.d.name == "embedded" {
		n = min(n, 300) // every command reads the collection
	}
	var sent counter
	client := privateClient(b, options.Client().ApplyURI(w.d.uri).SetMonitor(sent.monitor()))
	coll := w.rowsOf(b, client)
	m := w.start(b, func(cfg *distlock.Config) { cfg.Takeover = 5 * time.Minute })
	q := w.claims(b, m, coll, claim.Config{Workers: 16, Batch: batch})
	assert.Must(b, q.Add(b.Context(), jobs(n)...))
	least := w.leastWrite(b)
	var mu sync.Mutex // guards times
	times := make(map[int]int, n)
	all := make(chan struct{})
	sent.reset()
	begun := time.Now()
	stop := runs(b, q, func(_ context.Context, row *claim.Row[job]) error {
		mu.Lock()
		defer mu.Unlock()
		if times[row.Doc.ID]++; len(times) == n && times[row.Doc.ID] == 1 {
			close(all)
		}
		return nil
	})
	<-all
	stop() // and what was handled is completed
	took := time.Since(begun)
	counts, commands := sent.all(), 0
	for _, command := range []string{"find", "findAndModify", "update"} {
		commands += counts[command+" "+coll.Name()]
	}
	done := assert.Value(q.Counts(b.Context()))(b)
	twice := 0
	for _, times := range times {
		twice += times - 1
	}
	b.ReportMetric(float64(n)/took.Seconds(), "items/s")
	b.ReportMetric(float64(commands)/float64(n), "commands/item")
	b.ReportMetric(float64(n)/took.Seconds()*least.Seconds(), "items/least-write")
	b.ReportMetric(float64(twice), "duplicates")
	b.ReportMetric(float64(int64(n)-done.Done), "lost")
}
