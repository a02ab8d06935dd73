package study_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// It tries to break the page in a real browser: its script runs, and shows the two documents at an instant
// between two takeovers, in every generation.
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
	page, err := filepath.Abs(filepath.Join(root, "docs", "study.html"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dom, err := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--user-data-dir="+t.TempDir(), "--dump-dom", "file://"+page+"#two-force@12:18:31").Output()
	if err != nil {
		t.Fatalf("%s: %v", browser, err)
	}
	section := regexp.MustCompile(`(?s)<section id="two-force".*?</section>`).FindString(string(dom))
	documents := regexp.MustCompile(`(?s)<pre[^>]*>(.*?)</pre>`).FindAllStringSubmatch(section, -1)
	if len(documents) != 8 || !strings.Contains(section, `aria-valuetext="12:18:31"`) {
		t.Fatalf("%d documents:\n%.2000s", len(documents), section)
	}
	// At that instant 1.8 has given A's lock to B, 2.0 and 3.2 still watch, and in ours B has it as well.
	for i, holder := range []string{"process: b:", "process: a:", "process: a:", "process: b:"} {
		if lock, ping := documents[2*i][1], documents[2*i+1][1]; !strings.Contains(lock, holder) ||
			!strings.Contains(ping, "_id: "+strings.TrimPrefix(holder, "process: ")) {
			t.Errorf("%d: %s\n%s", i, lock, ping)
		}
	}
}
