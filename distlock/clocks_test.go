package distlock_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/locktest"
)

// A1, A2: tries to break, by the clock of one process that is off by far more than the takeover
// time: a live holder is left alone, byte for byte (a mongos of 2011 would have taken its lock by a
// clock that is ahead), and a dead one is taken by watching, after the takeover time and not never.
func TestClocks_OneIsWrong_LivingKeepAndDeadAreTakenByWatching(t *testing.T) {
	for name, by := range map[string]struct{ holder, contender time.Duration }{
		"contender ahead": {0, 20 * time.Minute}, "contender behind": {0, -20 * time.Minute},
		"holder ahead": {48 * time.Hour, 0}, "holder behind": {-48 * time.Hour, 0},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			a := w.startBy(locktest.WrongClock(by.holder), nil)
			b := w.startBy(locktest.WrongClock(by.contender), nil)
			g := a.mustTry("a")
			before := w.doc("a")
			for range 2 * takeoverTime / (10 * time.Second) {
				wantErr(t, assert.Err(b.try("a")), distlock.ErrHeld)
				time.Sleep(10 * time.Second)
			}
			if err := g.Err(); err != nil || !slices.Equal(before, w.doc("a")) {
				t.Errorf("%v; the document was %v, is %v", err, before, w.doc("a"))
			}
			a.kill()
			next, took := b.until("a", 10*time.Second, takeoverTime+time.Minute)
			if took < takeoverTime-pingTime || !strings.HasPrefix(next.TakeoverEvidence(), "rule watch:") {
				t.Errorf("taken %v after its death on %q", took, next.TakeoverEvidence())
			}
		})
	}
}
