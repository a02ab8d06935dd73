package study_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"mongodlm/internal/test/assert"
)

// hand does what a reader does: presses "next change", and moves the slider of another case.
const hand = `<script>
{
  const section = document.getElementById("two-force");
  const shown = () => section.querySelector("output").textContent + " " +
    section.querySelector("pre").textContent;
  section.querySelectorAll("button")[1].click();
  document.body.dataset.next = shown();
  const other = document.getElementById("cut-off"), slider = other.querySelector("input");
  other.querySelector(".wide").style.width = "300px"; // as on a telephone
  slider.value = 1200000;
  slider.dispatchEvent(new Event("input"));
  document.body.dataset.moved = other.querySelector("output").textContent +
    other.querySelector(".cursor").outerHTML;
  document.body.dataset.names = [".names", ".wide"].map((name) =>
    Math.round(other.querySelector(name).getBoundingClientRect().left));
  section.querySelectorAll("button")[0].click();
}
</script>`

// It tries to break the page in a real browser: its script runs, and shows the two documents at an
// instant between two takeovers, in every generation; the buttons and the slider lead to others.
func TestPage_InABrowser_ShowsTheDocumentsOfAnInstant(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: starts a browser")
	}
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			browser = found
			break
		}
	}
	if browser == "" {
		t.Skip("no browser is here: looked for chromium, chromium-browser and google-chrome")
	}
	text := assert.Value(os.ReadFile(filepath.Join(root, "docs", "study.html")))(t)
	page := filepath.Join(t.TempDir(), "study.html")
	assert.Must(t,
		os.WriteFile(page, []byte(strings.Replace(string(text), "</body>", hand+"</body>", 1)), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	open := func(fragment string) string {
		dom, err := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox",
			"--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
			"--disable-component-update", "--disable-sync", "--user-data-dir="+t.TempDir(), "--dump-dom",
			"file://"+page+"#"+fragment).Output()
		if err != nil {
			t.Fatalf("%s: %v", browser, err)
		}
		return string(dom)
	}
	if dom := open("%"); !strings.Contains(dom, `data-moved="12:20:00`) {
		t.Error("an address with an odd fragment ends the script")
	}
	dom := open("two-force@12:18:31")
	section := regexp.MustCompile(`(?s)<section id="two-force".*?</section>`).FindString(dom)
	documents := regexp.MustCompile(`(?s)<pre[^>]*>(.*?)</pre>`).FindAllStringSubmatch(section, -1)
	if len(documents) != 12 || !strings.Contains(section, `aria-valuetext="12:18:31"`) {
		t.Fatalf("%d documents:\n%.2000s", len(documents), section)
	}
	left := regexp.MustCompile(`data-names="(-?\d+),(-?\d+)"`).FindStringSubmatch(dom)
	if len(left) != 3 || left[1] != left[2] {
		t.Errorf("the names scroll away with the drawing: %q", left)
	}
	for _, want := range []string{`data-next="12:18:33 `,
		`data-moved="12:20:00&lt;path class=&quot;cursor&quot;`} {
		if !strings.Contains(dom, want) {
			t.Errorf("no %s", want)
		}
	}
	// At that instant 1.6 has given A's lock to B and then to C, 1.8 to B, 2.0 to 3.2 still watch, and
	// in ours B has it.
	for i, holder := range []string{"process: c:", "process: b:", "process: a:", "process: a:",
		"process: a:", "process: b:"} {
		if lock, ping := documents[2*i][1], documents[2*i+1][1]; !strings.Contains(lock, holder) ||
			!strings.Contains(ping, "_id: "+strings.TrimPrefix(holder, "process: ")) {
			t.Errorf("%d: %s\n%s", i, lock, ping)
		}
	}
}
