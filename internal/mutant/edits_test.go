package mutant_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mongodlm/internal/explore"
	"mongodlm/internal/mutant"
)

var allEdits = flag.Bool("mutant.edits", false,
	"lay every edit over its file and not every fifth; each takes seconds")

// everyFifth is the share of the edits that is tried by default.
const everyFifth = 5

// Every edit can be made: its text stands exactly once in its file, and its schedule is there.
func TestEdits_AreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	for _, e := range mutant.Edits {
		if text := read(t, e.File); strings.Count(text, e.Old) != 1 || e.Old == e.New {
			t.Errorf("%s: the text stands %d times in %s", e.Name, strings.Count(text, e.Old), e.File)
		}
		if _, err := explore.Named(e.Schedule); err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
	}
}

// With an edit its schedule fails, by the oracle that is meant. That it does not fail without it is
// shown in package explore.
func TestEdits_AreNoticed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: each edit is compiled")
	}
	tried := 0
	for i, e := range mutant.Edits {
		if !*allEdits && i%everyFifth != 0 {
			continue
		}
		tried++
		t.Run(e.Name, func(t *testing.T) { notices(t, e) })
	}
	t.Logf("%d of %d edits, all with -mutant.edits", tried, len(mutant.Edits))
}

func notices(t *testing.T, e mutant.Edit) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, "changed.go")
	overlay := filepath.Join(dir, "overlay.json")
	write(t, changed, []byte(strings.Replace(read(t, e.File), e.Old, e.New, 1)))
	replace, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(root, filepath.FromSlash(e.File)): changed},
	})
	if err != nil {
		t.Fatal(err)
	}
	write(t, overlay, replace)
	command := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-vet=off", "-count=1",
		"-timeout=2m", "-run=^TestNamed_", "./internal/explore", "-args", "-explore.named", e.Schedule)
	command.Dir = root
	out, err := command.CombinedOutput()
	if err == nil {
		t.Fatalf("%q is not noticed by %q", e.Name, e.Schedule)
	}
	if want := "VIOLATION " + e.Rule + ":"; !strings.Contains(string(out), want) {
		t.Fatalf("%q: no %q in what %q says:\n%s", e.Name, want, e.Schedule, out)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
