package mutant_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/mutant"
)

const root = "../../.."

var every = flag.Int("mutant.every", 18/effort.Share(3),
	"of the mistakes make every n-th, 1 for all")

func TestMain(m *testing.M) { effort.Main(m) }

// Each mistake replaces a string that occurs once in its file, and names an existing test. With -v
// the test lists the mistakes.
func TestMistakes_CanBeMade(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for i, m := range mutant.All() {
		t.Logf("%d  %s: %s %s (%s)", i+1, m.Name, m.Package, m.Test, m.Rule)
		if m.Name == "" || names[m.Name] {
			t.Errorf("%q: the name is empty or used twice", m.Name)
		}
		names[m.Name] = true
		changed(t, m)
		testExists(t, m)
	}
}

func testExists(t *testing.T, m mutant.Mistake) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(m.Package), "*_test.go"))
	assert.Must(t, err)
	for _, file := range files {
		text := assert.Value(os.ReadFile(file))(t)
		if strings.Contains(string(text), "\nfunc "+m.Test+"(t *testing.T)") {
			return
		}
	}
	t.Errorf("%q: no test %s in %s", m.Name, m.Test, m.Package)
}

// When a mistake is made, its test fails.
func TestMistakes_AreNoticed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: it compiles and links the packages")
	}
	all := mutant.All()
	made := 0
	programs := map[string][]mutant.Mistake{}
	for i, m := range all {
		if (i+1)%*every != 0 {
			continue
		}
		of := m.Package
		if !switchable(t, m) {
			of = m.Name // its own program
		}
		programs[of] = append(programs[of], m)
		made++
	}
	for of, mistakes := range programs {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			binary := builtWith(t, mistakes)
			for _, m := range mistakes {
				t.Run(m.Name, func(t *testing.T) { fails(t, m, binary) })
			}
		})
	}
	t.Logf("%d of %d in %d programs, all with -mutant.every=1", made, len(all), len(programs))
}

// builtWith compiles a test program with the mistakes, and returns its path.
func builtWith(t *testing.T, mistakes []mutant.Mistake) (binary string) {
	t.Helper()
	dir := t.TempDir()
	binary = filepath.Join(dir, "mutant.test")
	replace := map[string]string{}
	for path, text := range switched(t, mistakes) {
		at := assert.Value(filepath.Abs(filepath.Join(root, filepath.FromSlash(path))))(t)
		replace[at] = filepath.Join(dir, fmt.Sprint(len(replace), ".go"))
		assert.Must(t, os.WriteFile(replace[at], []byte(text), 0o600))
	}
	text := assert.Value(json.Marshal(map[string]any{"Replace": replace}))(t)
	overlay := filepath.Join(dir, "overlay.json")
	assert.Must(t, os.WriteFile(overlay, text, 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay,
		"-ldflags=-s -w", "-o", binary, "mongodlm/"+mistakes[0].Package)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return binary
}

// line matches a message of a failing test.
var line = regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: .*$`)

// fails runs a test program with one of its mistakes. The test of the mistake must fail with a
// message that contains the rule.
func fails(t *testing.T, m mutant.Mistake, binary string) {
	t.Helper()
	more := "-test.short"
	if m.Test == mutant.Walks {
		more = "-simulation.walks=50"
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^"+m.Test+"$", more, "-test.timeout=2m")
	cmd.Dir = t.TempDir() // a failing test may write files
	cmd.Env = append(os.Environ(), mistakeEnv+"="+m.Name)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	lines := line.FindAllString(string(out), -1)
	with := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, m.Rule) })
	if err == nil || !strings.Contains(string(out), "--- FAIL: "+m.Test) || with < 0 {
		t.Fatalf("%q: want %q by %s, it ended with %v:\n%s", m.Name, m.Rule, m.Test, err, out)
	}
	t.Logf("noticed %s: %s", m.Test, strings.TrimSpace(lines[with]))
}

func changed(t *testing.T, m mutant.Mistake) string {
	t.Helper()
	text := source(t, m.File)
	if n := strings.Count(text, m.Old); n != 1 || m.Old == m.New {
		t.Errorf("%q: the text occurs %d times in %s, want once:\n%s", m.Name, n, m.File, m.Old)
	}
	return strings.Replace(text, m.Old, m.New, 1)
}

func source(t *testing.T, file string) string {
	t.Helper()
	text := assert.Value(os.ReadFile(filepath.Join(root, filepath.FromSlash(file))))(t)
	return string(text)
}
