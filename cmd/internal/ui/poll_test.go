package ui_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/internal/test/assert"
)

// The page reads the locks once an interval, for any number of browsers, and never without a
// browser.
func TestPoll_HundredBrowsers_OneRoundAnInterval_NoneWithoutAViewer(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		time.Sleep(time.Hour)
		assert.MustEqual(t, w.store.Total(), 0, "%d commands before anybody looked, want %d")
		var all []*browser
		for i := range 100 {
			all = append(all, w.open([]string{"/", "/processes", "/timeline", "/lock?name=x"}[i%4], nil))
		}
		const rounds = 30
		time.Sleep(rounds * time.Second)
		synctest.Wait()
		// A round sends two commands, for the holders and for the waiters. Every three seconds the page
		// reads two histories, of all locks and of one lock.
		past := w.history.count()
		if n := w.store.Total(); n < 2*(rounds-1) || n > 2*(rounds+2) {
			t.Errorf("%d commands in %d intervals, want two an interval", n, rounds)
		}
		if past > 2*(rounds/3+2) {
			t.Errorf("the history was read %d times in %d seconds by 50 browsers", past, rounds)
		}
		for i, b := range all {
			if n, _ := b.received(); n < rounds-1 || n > rounds+2 {
				t.Errorf("browser %d was sent %d events in %d intervals", i, n, rounds)
			}
			b.leave()
		}
		time.Sleep(2 * time.Second)
		n := w.store.Total()
		time.Sleep(time.Hour)
		if now := w.store.Total(); now != n {
			t.Errorf("%d commands without a viewer", now-n)
		}
	})
}

// A browser that does not read delays no other browser, and the page keeps no data for it. When the
// browser reads again, it gets the present data.
func TestStream_SlowBrowser_OthersGoOn_ItGetsTheLatest(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		m := w.process()
		read := make(chan struct{})
		slow := w.open("/", func() { <-read })
		quick := w.open("/", nil)
		time.Sleep(10 * time.Second)
		w.hold(m, "late lock")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n, text := quick.received(); n < 18 || !strings.Contains(text, "late lock") {
			t.Errorf("the other browser was sent %d events", n)
		}
		close(read)
		synctest.Wait()
		if n, text := slow.received(); n != 2 || !strings.Contains(text, "late lock") {
			t.Errorf("the slow browser was sent %d events, want the one it was sent and the latest", n)
		}
	})
}

// The page serves at most 200 live browsers. It refuses the next one.
func TestStream_TooMany_Refused(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		for range 200 {
			w.open("/", nil)
		}
		synctest.Wait()
		rec := w.request(http.MethodGet, "/",
			func(r *http.Request) { r.Header.Set("Accept", "text/event-stream") })
		assert.Equal(t, rec.Code, http.StatusServiceUnavailable, "page 201: %d, want %d")
	})
}

// The page does not list the files of the folder /static.
func TestStatic_Folder_IsNotListed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		for path, code := range map[string]int{"/static/": 404, "/static/app.js": 200,
			"/static/icon.svg": 200, "/static": 404, "/static/..%2f": 404} {
			if rec := w.request(http.MethodGet, path, nil); rec.Code != code ||
				strings.Contains(rec.Body.String(), "<pre>") {
				t.Errorf("%s: %d, want %d\n%s", path, rec.Code, code, rec.Body)
			}
		}
	})
}
