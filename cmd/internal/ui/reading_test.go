package ui_test

import (
	"context"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"mongodlm/cmd/internal/ui"
	"mongodlm/distlock"
	"mongodlm/internal/test/fault"
)

// away makes the server refuse all commands of the page.
func (w *world) away() {
	w.store.Set(
		func(_ context.Context, call fault.Call, _ func() error) error { return fault.Refused(call.Op) })
}

// emptyTexts matches words and figures that report an empty result.
var emptyTexts = regexp.MustCompile(`>0<|\b(No|Nobody|Nothing|nobody|There is no)\b.*`)

// No page and no stream shows a figure or "none" for data that was never read. Each shows the
// reason.
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
				for _, truth := range []string{"Nothing was read so far", `live pages</dt><dd class="num">0<`} {
					page = strings.Replace(page, truth, "", 1)
				}
				if found := emptyTexts.FindString(page); found != "" {
					t.Errorf("%s says %q", path, found)
				}
				want(t, page, "could not be read since", "Not known")
			}
		}
	})
}

// Data from before an outage of the server is shown with its time on every page. It is shown as
// present data once the server is back.
func TestPage_ServerAway_OldFiguresAreShownAsOld(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		w.hold(w.process(), "job")
		ofLocks := []string{"/", "/timeline", "/processes", "/elections", "/lock?name=job",
			"/lock?name=other"}
		for _, path := range ofLocks {
			lack(t, w.get(path), "as of ")
		}
		read := time.Now().UTC().Format("15:04:05")
		w.away()
		time.Sleep(30 * time.Second)
		for _, path := range ofLocks {
			want(t, w.get(path), "as of "+read+" UTC, 30s ago", `<div class="old">`)
		}
		w.store.Set(nil)
		time.Sleep(5 * time.Second)
		for _, path := range ofLocks {
			lack(t, w.get(path), "as of ", `class="old"`)
		}
	})
}

// An unreadable history is not shown as an empty history.
func TestPage_HistoryCannotBeRead_DoesNotSayThatNothingHappened(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		want(t, w.get("/lock?name=job"), "Nothing happened yet")
		time.Sleep(time.Minute)
		w.history.fail(distlock.ErrUnavailable)
		page := w.get("/lock?name=job")
		want(t, page, "The written history cannot be read")
		lack(t, page, "Nothing happened yet")
	})
}

// For a database without locks, every page shows the text of Config.Void, which is called seldom.
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

// The page finds queues by the locks of their workers. So it shows no queues if the locks could not
// be read again.
func TestPage_LocksNotReadAgain_ShowsNoQueues(t *testing.T) {
	t.Parallel()
	client := served(t)
	w := newWorld(t, func(c *ui.Config) { c.Client, c.Interval = client, 100*time.Millisecond })
	lack(t, w.get("/"), "could not be read since")
	w.away()
	// The last round was less than an interval ago.
	for !strings.Contains(w.get("/"), "could not be read since") {
		runtime.Gosched()
	}
	lack(t, w.get("/queues"), "No worker claims rows")
	want(t, w.get("/queues"), "Not known: the locks of the workers could not be read")
}
