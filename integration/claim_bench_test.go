package integration_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"mongodlm/claim"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

var claimRows = flag.Int("claimrows", 5000, "how many rows BenchmarkClaim works on each time")

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
	coll := w.rowsOf(b, w.client(b, &sent))
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

// BenchmarkClaim_Idle lets ten rows a second come to idle processes: commands a row, to claim and
// to complete, and how long after its insert a row begins. The processes are Managers of one
// program.
func BenchmarkClaim_Idle(b *testing.B) {
	const rows, warm = 200, 50
	for _, d := range named("replicaset", "mongos", "uri") {
		b.Run(d.name, func(b *testing.B) {
			w := d.open(b)
			for _, n := range []int{1, 5, 20} {
				w.part(b, fmt.Sprintf("processes=%d", n), func(b *testing.B) {
					var sent counter
					coll := w.rowsOf(b, w.client(b, &sent))
					plain := w.d.app.Database(w.db.Name()).Collection(coll.Name())
					var mu sync.Mutex // guards took
					took := make([]time.Duration, 0, rows)
					came := make([]time.Time, rows)
					for range n {
						q := w.claims(b, w.start(b, nil), coll, claim.Config{Tend: time.Hour})
						defer runs(b, q, func(_ context.Context, row *claim.Row[job]) error {
							mu.Lock()
							defer mu.Unlock()
							if row.Doc.ID >= warm {
								took = append(took, time.Since(came[row.Doc.ID]))
							}
							return nil
						})()
					}
					time.Sleep(2 * time.Second)
					for i := range rows {
						if i == warm {
							sent.reset()
						}
						mu.Lock()
						came[i] = time.Now()
						mu.Unlock()
						assert.Value(plain.InsertOne(b.Context(), job{ID: i}))(b)
						time.Sleep(time.Until(came[i].Add(100 * time.Millisecond)))
					}
					eventually(b, standstill, "all rows are begun", func() bool {
						mu.Lock()
						defer mu.Unlock()
						return len(took) >= rows-warm
					})
					all, commands := sent.all(), 0
					for _, command := range []string{"find", "findAndModify", "update"} {
						commands += all[command+" "+coll.Name()]
					}
					slices.Sort(took)
					b.ReportMetric(float64(commands)/(rows-warm), "commands/row")
					b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
					b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
				})
			}
		})
	}
}
