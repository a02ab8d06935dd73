package ui_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock/history"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
)

var (
	barOf = regexp.MustCompile(`class="bar p(\d+)[^>]*><title>job, ([^\n]+)`)
	dotOf = regexp.MustCompile(`class="dot p(\d+)`)
)

// On the timeline, consecutive holders of a lock have different colors, for any number of
// processes. A wide bar shows the name of its holder.
func TestTimeline_NeighborsDifferInColor_BarsHaveNames(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		const turns, long = 40, 8 * time.Second
		begun := time.Now().Add(-turns * long).UTC()
		for i := range turns {
			holder := fmt.Sprintf("host:%d:1:x", i*7%37) // some return, next to different holders
			e := history.Entry{Process: holder, Fence: int64(i + 1), Name: "job",
				Session: bson.NewObjectID()}
			for kind, at := range map[string]time.Duration{"acquired": 0, "released": long} {
				e.Kind, e.At = kind, begun.Add(time.Duration(i)*long+at)
				w.history.put(e)
			}
		}
		for range 2 { // the colors do not change
			page := w.get("/timeline?span=5m")
			bars := barOf.FindAllStringSubmatch(page, -1)
			if len(bars) < 30 {
				t.Fatalf("%d bars in\n%s", len(bars), main(page))
			}
			for i := 1; i < len(bars); i++ {
				if before, bar := bars[i-1], bars[i]; before[1] == bar[1] && before[2] != bar[2] {
					t.Errorf("bars %d and %d of %s and %s have color %s", i-1, i, before[2], bar[2], bar[1])
				}
			}
			lack(t, page, "one color for each process")
		}
		want(t, w.get("/timeline?span=1m"), `<text class="in" x="5" y="15">host:`)
	})
}

func TestLockPage_HolderAndWaitersDifferInColor(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		for n := range 40 {
			name := fmt.Sprint("job", n)
			waiters := bson.A{}
			for i := range 6 {
				waiters = append(waiters, bsontest.D("ts", bson.NewObjectID(),
					"process", fmt.Sprintf("host:%d:1:w", n*7+i)))
			}
			assert.Must(t, w.mem.Put(catalog.LocksCollection, bsontest.D("_id", name, "state", int32(1),
				"ts", bson.NewObjectID(), "process", fmt.Sprintf("host:%d:1:h", n),
				"fence", int64(1), "waiters", waiters)))
		}
		time.Sleep(2 * time.Second)
		for n := range 40 {
			page, _, _ := strings.Cut(w.get(fmt.Sprint("/lock?name=job", n)), "one band per process")
			dots := dotOf.FindAllStringSubmatch(page, -1)
			if len(dots) != 7 {
				t.Fatalf("%d dots in\n%s", len(dots), main(page))
			}
			for i, dot := range dots[1:] {
				if dot[1] == dots[0][1] || dot[1] == dots[i][1] {
					t.Errorf("job%d: colors %v", n, dots)
					break
				}
			}
		}
	})
}
