package ui_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/ui"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
	"mongodlm/internal/test/fault"
)

// browserLimit bounds each use of a browser, including the start of the browser.
const browserLimit = 5 * time.Minute

type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu sync.Mutex // guards messages
	// messages contains errors of the browser, violations of the content security policy, and dialogs.
	messages []string
}

func browserPath() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// startBrowser starts a browser at the first call. The browser ends after the last test.
var startBrowser = sync.OnceValues(func() (context.Context, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browserPath()),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true))
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ = chromedp.NewContext(ctx) // ends with the browser
	endBrowser = func() error {
		defer end()
		return chromedp.Cancel(ctx)
	}
	return ctx, chromedp.Do(ctx)
})

var endBrowser = func() error { return nil }

// inBrowser opens the page of a world in a separate browser context.
func inBrowser(t *testing.T, w *world) *tab {
	t.Helper()
	server := httptest.NewServer(w.page)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(assert.Value(startBrowser())(t), browserLimit)
	t.Cleanup(cancel)
	b := &tab{t: t, url: server.URL}
	b.ctx, _ = chromedp.NewContext(ctx, chromedp.WithNewBrowserContext()) // ends with the browser
	t.Cleanup(func() {
		if err := chromedp.Cancel(b.ctx); err != nil {
			t.Log(err)
		}
		server.CloseClientConnections()
	})
	err := chromedp.Listen(b.ctx, func(event any) {
		text := ""
		switch e := event.(type) {
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError {
				text = e.Entry.Text + " " + e.Entry.URL
			}
		case *page.EventJavascriptDialogOpening:
			text = "a dialog: " + e.Message
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if text != "" {
			b.messages = append(b.messages, text)
		}
	})
	if err == nil {
		_, err = chromedp.Call(b.ctx, log.Enable, cdp.Empty{})
	}
	assert.Must(t, err)
	b.do(chromedp.EmulateViewport(1280, 800))
	return b
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	assert.Must(b.t, chromedp.Do(b.ctx, actions...))
}

// visit opens a page and waits until its script runs.
func (b *tab) visit(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.url + path))
	b.live()
}

func (b *tab) live() {
	b.t.Helper()
	b.until("the page is live", `document.getElementById("live").dataset.state === "on"`)
}

// The test waits until the JavaScript condition is true. The tab may open another page meanwhile.
func (b *tab) until(what, condition string) {
	b.t.Helper()
	text := ""
	for {
		holds, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+condition+")"))
		switch {
		case b.ctx.Err() != nil:
			b.t.Fatalf("not in time: %s: %v; the page was\n%s", what, err, text)
		case err == nil && holds:
			return
		}
		if now, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](readable)); err == nil {
			text = now
		}
		// An evaluation fails while the tab opens another page.
		clock.Sleep(clock.System(), 20*time.Millisecond, b.ctx.Done())
	}
}

// readable is a JavaScript expression for the visible text of a page.
const readable = `[location.href, document.title, document.body.innerText,
	...[...document.querySelectorAll("rect.bar title")].map((t) => t.textContent)].join("\n")`

func value[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// checkMessages reports every message as an error, except messages that contain one of the given
// words.
func (b *tab) checkMessages(but ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.messages {
		if !slices.ContainsFunc(but, func(word string) bool { return strings.Contains(text, word) }) {
			b.t.Errorf("the browser says: %s", text)
		}
	}
}

// browserWorld returns a world with real time, which a browser requires.
func browserWorld(t *testing.T) *world {
	t.Helper()
	needsBrowser(t)
	return newWorld(t, func(c *ui.Config) { c.AllowBreak, c.Interval = true, 100*time.Millisecond })
}

// needsBrowser skips the test with -short or if this machine has no browser.
func needsBrowser(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser")
	}
	if browserPath() == "" {
		t.Skip("there is no browser to try the page in: apt-get install chromium")
	}
	t.Parallel()
}

// In a real browser the page behaves as follows:
//
//   - It shows changes and obeys keys.
//   - It does not execute a part of a lock's name.
//   - It keeps typed text.
//   - If the server does not answer, the page reports this and recovers by itself.
//   - Its form breaks a lock.
func TestBrowser_Live(t *testing.T) {
	w := browserWorld(t)
	m := w.process()
	b := inBrowser(t, w)
	b.visit("/")
	const odd = "<img src=x onerror=alert(1)><script>alert(2)</script>"
	w.hold(m, odd, distlock.Why(odd))
	g := w.hold(m, "nightly report", distlock.Why("works"))
	b.until("locks appear", `document.querySelectorAll("a.row").length === 2`)
	assert.Equal(t, value[string](b, `document.querySelector("a.row").innerText`), odd,
		"the odd lock shows as %q, want %q")

	// A script sends the key, because a key press of chromedp types the slash even if the page
	// prevents it.
	value[bool](b,
		`document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "/", bubbles: true}))`)
	b.until("a key leads to the search", `document.activeElement.id === "q"`)
	b.do(chromedp.KeyEvent("NIGHT"))
	b.until("what is typed filters",
		`document.querySelectorAll("a.row").length === 1 && location.search === "?q=NIGHT"`)
	w.hold(m, "another night")
	b.until("it goes on while one types", `document.querySelectorAll("a.row").length === 2`)
	assert.Equal(t, value[string](b, `document.activeElement.value`), "NIGHT",
		"the search holds %q while the page is live, want %q")
	b.do(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent("jj"), chromedp.KeyEvent(kb.Enter))
	b.until("a row is opened by key",
		`document.querySelector("h1 bdi")?.innerText === '"nightly report"'`)
	b.live() // now the page accepts keys
	b.do(chromedp.KeyEvent("2"))
	b.until("a page is opened by key",
		`document.title.startsWith("Timeline") && document.querySelectorAll("rect.bar").length === 3`)

	w.store.Set(
		func(_ context.Context, call fault.Call, _ func() error) error { return fault.Refused(call.Op) })
	b.until("it says that the server is away",
		`document.getElementById("live").dataset.state === "stale" &&
		document.body.innerText.includes("Reads of the locks have failed since")`)
	w.store.Set(nil)
	b.until("it comes back",
		`document.getElementById("live").dataset.state === "on" && !document.querySelector(".problem")`)

	b.visit("/lock?name=nightly+report")
	b.do(chromedp.Click("a.danger"), chromedp.WaitVisible("form.ask"),
		chromedp.SendKeys("[name=why]", "it hangs"), chromedp.Submit("form.ask"))
	b.until("the page shows that the lock is free",
		`document.body.innerText.includes("The lock is free now")`)
	if lock, err := w.mem.Read(t.Context(), "nightly report"); err != nil || lock.Held ||
		lock.Fence != g.Fence()+1 {
		t.Errorf("%+v, %v", lock, err)
	}
	b.checkMessages()
}

// An update of a page with 200 locks does not move the content. The colors of the page follow the
// system setting until the user selects light or dark on the page.
func TestBrowser_Layout(t *testing.T) {
	w := browserWorld(t)
	for i := range 200 {
		assert.Must(t, w.mem.Put(catalog.LocksCollection, bsontest.D("_id", fmt.Sprintf("lock %04d %s", i,
			strings.Repeat("x", i%90)), "state", int32(1), "ts", bson.NewObjectID(), "process", "host:1:2:x",
			"when", bson.NewDateTimeFromTime(time.Now().Add(-time.Duration(i)*time.Minute)),
			"why", strings.Repeat("why ", i%50), "fence", int64(i))))
	}
	b := inBrowser(t, w)
	b.visit("/")
	value[int](b, `window.shifts = 0; new PerformanceObserver((list) => {
			for (const e of list.getEntries()) shifts += e.value;
		}).observe({type: "layout-shift", buffered: false}); scrollTo(0, 1000);
		window.rounds = () => +document.querySelector(".foot").innerText.split("round ")[1];
		window.first = rounds()`)
	const columns = `JSON.stringify([...document.querySelectorAll("th")].map((c) =>
		c.getBoundingClientRect().width))`
	before := value[string](b, columns)
	b.until("rounds pass", `rounds() > first + 5`)
	assert.Equal(t, value[float64](b, "shifts"), 0,
		"the layout has shifted by %v in five rounds, want %v")
	after := value[string](b, columns)
	if y := value[float64](b, "scrollY"); y != 1000 || before != after {
		t.Errorf("scrolled from 1000 to %v; columns from %s to %s", y, before, after)
	}

	const background = "getComputedStyle(document.body).backgroundColor"
	scheme := func(want string) string {
		if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: want}}}); err != nil {
			t.Fatal(err)
		}
		return value[string](b, background)
	}
	light, dark := scheme("light"), scheme("dark")
	if light == dark {
		t.Errorf("light and dark are both %s", light)
	}
	b.do(chromedp.Click("#theme"))
	assert.Equal(t, value[string](b, background), light, "switched to light it is %s, want %s")
	b.visit("/timeline")
	assert.Equal(t, value[string](b, background), light,
		"after the switch another page is %s, want %s")

	b.checkMessages()
}
