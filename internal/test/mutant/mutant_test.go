package mutant_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/mutant"
	"mongodlm/internal/test/simulation"
)

const root = "../../.."

var (
	every = flag.Int("mutant.every", 18/effort.Share(3),
		"of the mistakes that are changes of a text try every n-th, 1 for all")
	only = flag.String("mutant.only", "", "the mistake with which this program was built, or "+
		"of its store")
	layer = flag.Bool("mutant.layers", false,
		"tell also how many schedules each layer needs to notice a mistake; takes minutes")
)

func TestMain(m *testing.M) { effort.Main(m) }

// Every mistake can be made: its text stands exactly once in its file, and its schedule or test is
// there. With -v it lists them with their numbers.
func TestMistakes_CanBeMade(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for i, m := range mutant.All() {
		t.Logf("%d  %s: %s%s %s (%s)", i+1, m.Name, m.Schedule, m.Package, m.Test, m.Rule)
		if m.Name == "" || names[m.Name] || (m.File == "") == (m.Store == 0) {
			t.Errorf("%q: a name of its own, and either a text or the store", m.Name)
		}
		names[m.Name] = true
		if m.File != "" {
			changed(t, m)
		}
		if m.Test != "" {
			stands(t, m)
		} else if _, err := simulation.Named(m.Schedule); err != nil {
			t.Errorf("%q: %v", m.Name, err)
		}
	}
}

// stands demands that the test of a mistake is there.
func stands(t *testing.T, m mutant.Mistake) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(m.Package), "*_test.go"))
	assert.Must(t, err)
	for _, file := range files {
		text := assert.Value(os.ReadFile(file))(t)
		if strings.Contains(string(text), "\nfunc "+m.Test+"(t *testing.T)") && m.Schedule == "" &&
			m.File != "" {
			return
		}
	}
	t.Errorf("%q: no test %s in %s, or a schedule besides", m.Name, m.Test, m.Package)
}

// What the store does wrong is noticed. That nothing is noticed without it, and without any of the
// other mistakes, is shown in package simulation, which plays the same schedules.
func TestStoreMistakes_AreNoticed(t *testing.T) {
	t.Parallel()
	for _, m := range mutant.All() {
		if m.Store != 0 {
			t.Run(m.Name, func(t *testing.T) { t.Parallel(); noticed(t, m) })
		}
	}
}

// With a change of a text the same program notices it. Programs are made with all mistakes that
// concern them, see switched, and one mistake is made in each run.
func TestTextMistakes_AreNoticed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: changes of a text are compiled and linked")
	}
	n := 0
	programs := map[string][]mutant.Mistake{}
	for _, m := range mutant.All() {
		if m.File == "" {
			continue
		}
		if n++; n%*every == 0 {
			of := cmp.Or(m.Package, "simulation")
			if !switchable(t, m) {
				of = m.Name // alone
			}
			programs[of] = append(programs[of], m)
		}
	}
	for of, mistakes := range programs {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			binary := builtWith(t, mistakes)
			for _, m := range mistakes {
				t.Run(m.Name, func(t *testing.T) { made(t, m, binary) })
			}
		})
	}
	t.Logf("%d of %d in %d programs, all with -mutant.every=1", n / *every, n, len(programs))
}

// In a program that was built with a mistake, the schedule that was made for it notices it.
func TestMistake_InThisProgram_IsNoticed(t *testing.T) {
	if *only == "" {
		t.Skip("only with -mutant.only")
	}
	for _, m := range mutant.All() {
		if m.Name == *only {
			noticed(t, m)
			return
		}
	}
	t.Fatalf("no mistake is named %q", *only)
}

// noticed demands that the schedule of a mistake fails, with streams or without, by the oracle that
// is meant.
func noticed(t *testing.T, m mutant.Mistake) {
	t.Helper()
	first := func(harmOnly bool) (found []simulation.Violation) {
		for _, streams := range []bool{false, true} {
			s := assert.Value(simulation.Named(m.Schedule))(t)
			s.StoreMistake, s.Streams, s.HarmOnly = m.Store, streams, harmOnly
			if r := simulation.Run(t, s); r.Failed() {
				found = append(found, r.Violations[0])
			}
		}
		return found
	}
	want := func(rule string, found []simulation.Violation) {
		for _, v := range found {
			if v.Rule == rule {
				t.Logf("noticed %v", v)
				return
			}
		}
		t.Errorf("%q: want %s in %q, found %v", m.Name, rule, m.Schedule, found)
	}
	want(m.Rule, first(false))
	if m.Harm != "" {
		want(m.Harm, first(true))
	}
	if *layer {
		layers(t, m)
	}
}

// builtWith compiles this program with mistakes in it, or, where they name a test of another
// package, that package's tests.
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
	what := "."
	if mistakes[0].Test != "" {
		what = "mongodlm/" + mistakes[0].Package
	}
	run(t, exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-ldflags=-s -w",
		"-o", binary, what))
	return binary
}

// made makes one of the mistakes with which a program was built. The program says that it notices
// it, or the test of the mistake fails.
func made(t *testing.T, m mutant.Mistake, binary string) {
	t.Helper()
	program := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Env = append(os.Environ(), mistakeEnv+"="+m.Name)
		return cmd
	}
	if m.Test != "" {
		fails(t, m, program("-test.run=^"+m.Test+"$", "-test.short", "-test.timeout=2m"))
		return
	}
	limit := "2m"
	if *layer {
		limit = "1h"
	}
	out := run(t, program("-test.v", "-test.run=^TestMistake_InThisProgram_", "-test.timeout="+limit,
		"-mutant.only="+m.Name, fmt.Sprintf("-mutant.layers=%v", *layer)))
	if !strings.Contains(out, "--- PASS: TestMistake_InThisProgram_") {
		t.Fatalf("it did not run:\n%s", out)
	}
	for _, line := range regexp.MustCompile(`noticed .*`).FindAllString(out, -1) {
		t.Log(line)
	}
}

// fails runs the test of a mistake, which must fail and say what is meant.
func fails(t *testing.T, m mutant.Mistake, test *exec.Cmd) {
	t.Helper()
	out, err := test.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: .*$`).FindString(string(out))
	if err == nil || !strings.Contains(string(out), "--- FAIL: "+m.Test) ||
		!strings.Contains(said, m.Rule) {
		t.Fatalf("%q: want %q by %s, it ended with %v:\n%s", m.Name, m.Rule, m.Test, err, out)
	}
	t.Logf("noticed %s: %s", m.Test, strings.TrimSpace(said))
}

// changed returns the text of a file with a mistake in it.
func changed(t *testing.T, m mutant.Mistake) string {
	t.Helper()
	text := source(t, m.File)
	if n := strings.Count(text, m.Old); n != 1 || m.Old == m.New {
		t.Errorf("%q: the text stands %d times in %s, want once:\n%s", m.Name, n, m.File, m.Old)
	}
	return strings.Replace(text, m.Old, m.New, 1)
}

// source returns the text of a file of the module.
func source(t *testing.T, file string) string {
	t.Helper()
	text := assert.Value(os.ReadFile(filepath.Join(root, filepath.FromSlash(file))))(t)
	return string(text)
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}
