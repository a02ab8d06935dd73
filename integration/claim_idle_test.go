package integration_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/claim"
	"mongodlm/internal/test/assert"
)

// BenchmarkClaim_Idle lets ten rows a second come to idle processes: commands a row, to claim and to
// complete, and how long after its insert a row begins. The processes are Managers of one program.
func BenchmarkClaim_Idle(b *testing.B) {
	const rows, warm = 200, 50
	for _, d := range named("replicaset", "mongos", "uri") {
		b.Run(d.name, func(b *testing.B) {
			w := d.open(b)
			for _, n := range []int{1, 5, 20} {
				w.part(b, fmt.Sprintf("processes=%d", n), func(b *testing.B) {
					var sent counter
					client := privateClient(b, options.Client().ApplyURI(w.d.uri).SetMonitor(sent.monitor()))
					coll := w.rowsOf(b, client)
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
