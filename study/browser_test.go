package main

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

// hand is a script that uses the page like a reader. It opens every case in every generation, and
// plays to the step that asks for a guess. It guesses, and follows the link to the deciding step.
// It records failures.
const hand = `<script>
{
  const bad = [], $ = (id) => document.getElementById(id);
  const all = JSON.parse($("data").textContent);
  let cells = 0;
  for (const c of all.cases) for (const p of c.Plays) {
    const name = c.Name + "/" + p.g;
    follow("#" + name);
    cells++;
    const shown = () => $("verdict").textContent;
    if (p.s === "no") { if (!shown().includes(p.w)) bad.push(name + ": no reason"); continue; }
    if (shown().includes(p.w) || $("verdict").querySelector("b").textContent === p.o) bad.push(name + ": the verdict is not hidden");
    $("slider").value = $("slider").max;
    $("slider").dispatchEvent(new Event("input"));
    if (!$("next").disabled) bad.push(name + ": the steps do not wait for a guess");
    if ($("steps").querySelector(".decides")) bad.push(name + ": the deciding step is not hidden");
    document.querySelector("#verdict [data-guess]").click();
    if (!shown().includes(p.w) || !shown().includes(p.o) || !shown().includes(p.c)) bad.push(name + ": no verdict after the guess");
    follow($("verdict").querySelector("a").getAttribute("href"));
    if (!$("step").textContent.includes(p.w)) bad.push(name + ": no reason at the deciding step: " + $("step").textContent);
    $("slider").value = $("slider").max;
    $("slider").dispatchEvent(new Event("input"));
    if (!$("next").disabled || !$("drawing").querySelector("svg")) bad.push(name + ": the slider does not reach the end");
    const hours = [...document.querySelectorAll(".hour")].map((e) => e.getBoundingClientRect());
    if (hours.some((r, i) => i && r.left < hours[i - 1].right)) bad.push(name + ": hours overlap");
    if (document.documentElement.scrollWidth > innerWidth) bad.push(name + ": wider than the screen");
  }
  document.body.dataset.cells = cells;
  document.body.dataset.bad = bad.join("; ");
  location.hash = "two-force/1.8/23";
  dispatchEvent(new HashChangeEvent("hashchange"));
}
</script>`

// The page plays every case at the width of a telephone and of a desktop. It hides the verdict
// until the reader guesses, and then marks the deciding step. A link to a step opens the step. An
// invalid link opens the page.
func TestPage_InABrowser_Plays(t *testing.T) {
	t.Parallel()
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
		t.Skip("there is no browser: chromium, chromium-browser and google-chrome are missing")
	}
	text := assert.Value(os.ReadFile(filepath.Join(root, "docs", "study.html")))(t)
	page := filepath.Join(t.TempDir(), "study.html")
	assert.Must(t, os.WriteFile(page,
		[]byte(strings.Replace(string(text), "</body>", hand+"</body>", 1)), 0o600))
	for size, fragment := range map[string]string{"390,900": "%", "1280,900": "no-case/9.9/x"} {
		t.Run(size, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			dom, err := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox",
				"--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
				"--disable-component-update", "--disable-sync", "--user-data-dir="+t.TempDir(),
				"--window-size="+size, "--dump-dom", "file://"+page+"#"+fragment).Output()
			if err != nil {
				t.Fatalf("%s: %v", browser, err)
			}
			for _, want := range []string{`data-cells="150"`, `data-bad=""`} {
				if !strings.Contains(string(dom), want) {
					t.Errorf("%s: no %s, but %s", size, want,
						regexp.MustCompile(`data-(cells|bad)="[^"]{0,900}`).FindAllString(string(dom), -1))
				}
			}
			step := regexp.MustCompile(`(?s)<div id="step".*?</div>`).FindString(string(dom))
			for _, want := range []string{"12:18:32", "{_id: balancer} set {state: 0}",
				"r1.8.5 client/distlock.cpp:235"} {
				if !strings.Contains(step, want) {
					t.Errorf("%s: the step of the link has no %q: %s", size, want, step)
				}
			}
		})
	}
}
