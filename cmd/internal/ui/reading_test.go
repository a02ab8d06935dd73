package ui_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"mongodlm/cmd/internal/ui"
	"mongodlm/internal/test/fault"
)

// away makes the store refuse all commands of the page.
func (w *world) away() {
	w.store.Set(
		func(_ context.Context, call fault.Call, _ func() error) error { return fault.Refused(call.Op) })
}

// emptyTexts matches texts and figures that report an empty result.
var emptyTexts = regexp.MustCompile(`>0<|\b(No|Nobody|Nothing|nobody|There is no)\b.*`)

// Until the first successful read, no page and no stream shows a value as zero or as empty. The
// page shows the reason.
func TestPage_NothingReadSoFar_SaysNoFigureAndNoNone(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		w.hold(w.process(), "job")
		w.away()
		for _, path := range append([]string{"/?show=silent", "/?q=x", "/lock?name=nothing"}, paths...) {
			b := w.open(path, nil)
			time.Sleep(2 * time.Second)
			_, streamed := b.received()
			b.leave()
			for _, page := range []string{main(w.get(path)), streamed} {
				for _, truth := range []string{"Nothing has been read yet",
					`live pages</dt><dd class="num">0<`} {
					page = strings.Replace(page, truth, "", 1)
				}
				if found := emptyTexts.FindString(page); found != "" {
					t.Errorf("%s says %q", path, found)
				}
				want(t, page, "have failed since", "Unknown")
			}
		}
	})
}

// If the server does not answer, each page and each stream reports that without secrets, and shows
// the earlier data with its time. After the outage, they show present data again.
func TestPage_ServerAway_OldFiguresAreShownAsOld(t *testing.T) {
	const secret = "hunter2"
	inBubble(t, nil, func(t *testing.T, w *world) {
		w.hold(w.process(), "job")
		ofLocks := []string{"/", "/timeline", "/processes", "/elections", "/lock?name=job",
			"/lock?name=other"}
		each := func(check func(page string)) {
			t.Helper()
			for _, path := range ofLocks {
				check(w.get(path))
				b := w.open(path, nil)
				time.Sleep(time.Second)
				_, event := b.received()
				b.leave()
				check(event)
			}
		}
		present := func(page string) { lack(t, page, "as of ", `class="old"`, "have failed since") }
		each(present)
		time.Sleep(time.Minute)
		w.get("/")
		read := time.Now().UTC().Format("15:04:05")
		w.store.Set(func(_ context.Context, call fault.Call, _ func() error) error {
			return fmt.Errorf("dial mongodb://u:%s@h<b>: %w", secret, fault.Refused(call.Op))
		})
		time.Sleep(30 * time.Second)
		w.get("/")
		time.Sleep(500 * time.Millisecond)
		want(t, w.get("/"), "as of "+read+" UTC, 31s ago")
		each(func(page string) {
			want(t, page, "have failed since", "xxx@h&lt;b&gt;", "as of "+read+" UTC, ", `<div class="old">`)
			lack(t, page, secret)
		})
		w.store.Set(nil)
		time.Sleep(5 * time.Second)
		each(present)
	})
}

// For a database that was never used, each page shows the text of Config.Void. The page caches this
// text.
func TestPage_EmptyDatabase_SaysThatNothingWasEverLocked(t *testing.T) {
	asked := 0
	noLocks := func(c *ui.Config) {
		c.Void = func(context.Context) (string, error) {
			asked++
			return `database "distlok" has no collection locks: nothing was ever locked there`, nil
		}
	}
	inBubble(t, noLocks, func(t *testing.T, w *world) {
		for _, path := range paths {
			page := w.get(path)
			want(t, page, "nothing was ever locked there.")
			lack(t, page, `class="figures"`)
			time.Sleep(time.Second)
		}
		if asked > 2 {
			t.Errorf("it was asked %d times in ten seconds", asked)
		}
		w.hold(w.process(), "job")
		time.Sleep(time.Second)
		if rec := w.request(http.MethodGet, "/", nil); strings.Contains(rec.Body.String(),
			"ever locked") {
			t.Errorf("it has a lock, and says\n%s", main(rec.Body.String()))
		}
	})
}

// The page finds queues by the locks of their workers. If these locks cannot be read, the page
// shows the queues as unknown, and not as missing.
func TestPage_LocksNotReadAgain_ShowsNoQueues(t *testing.T) {
	t.Parallel()
	client := served(t)
	w := newWorld(t, func(c *ui.Config) { c.Client, c.Interval = client, 100*time.Millisecond })
	lack(t, w.get("/"), "have failed since")
	w.away()
	// The page may still use the last round, which is younger than an interval.
	for !strings.Contains(w.get("/"), "have failed since") {
		runtime.Gosched()
	}
	lack(t, w.get("/queues"), "No worker claims rows")
	want(t, w.get("/queues"), "Unknown: the locks of the workers could not be read")
}
