package model_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"mongodlm/internal/test/effort"
)

var all = flag.Bool("model.all", false, "check all variants: minutes, and gigabytes of memory")

func TestMain(m *testing.M) { effort.Main(m) }

// variants are those of README.md, with the expected verdicts.
var variants = []struct {
	name     string
	defines  string
	violated bool
	long     bool
}{
	{name: "by ts, six ticks", defines: "MAXT=6"},
	{name: "condemned first, six ticks", defines: "CONDEMN MAXT=6"},

	{name: "by ts", long: true},
	{name: "by ts, stopwatch read after the second look", defines: "END_LATE", violated: true},
	{name: "by ts, stopwatch from before the first look", defines: "START_EARLY", violated: true},
	{name: "by ts, deadline from the reply", defines: "FROM_ACK", violated: true},
	{name: "by ts, revived by a late reply", defines: "REVIVE", violated: true},

	{name: "condemned first", defines: "CONDEMN", long: true},
	{name: "condemned first, stopwatch read late", defines: "CONDEMN END_LATE", long: true},
	{name: "condemned first, revived", defines: "CONDEMN REVIVE", long: true},
	{name: "condemned first, revived, read late", defines: "CONDEMN REVIVE END_LATE", long: true},
	{name: "condemned first, stopwatch early", defines: "CONDEMN START_EARLY", violated: true},
	{name: "condemned first, deadline from the reply", defines: "CONDEMN FROM_ACK", violated: true},

	{name: "by ts, H = T", defines: "H=4", long: true},
	{name: "by ts, H = T + 1", defines: "H=5", violated: true},
	{name: "condemned first, H = T + 1", defines: "CONDEMN H=5", violated: true},

	{name: "by ts, looks 1 old", defines: "STALE=1 MAXT=8", long: true},
	{name: "by ts, looks 2 old", defines: "STALE=2 MAXT=8", long: true},
	{name: "by ts, looks 2 old, H = 2", defines: "STALE=2 H=2 MAXT=8", long: true},
	{name: "by ts, looks 3 old", defines: "STALE=3 MAXT=9", violated: true},
	{name: "by ts, looks 1 old, revived", defines: "STALE=1 REVIVE", violated: true},
	{name: "condemned first, looks 2 old", defines: "CONDEMN STALE=2 MAXT=8", long: true},
	{name: "condemned first, looks 3 old, revived", defines: "CONDEMN STALE=3 REVIVE MAXT=8",
		long: true},
}

// The rule holds in the variants that keep it and is violated in those that break it. By default
// the violated variants run and two clean ones of six ticks.
func TestLease_Variants_Verdicts(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"spin", "cc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: the model is not checked", tool)
		}
	}
	model, err := filepath.Abs("lease.pml")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range variants {
		if v.long && !*all {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			errors, states := check(t, model, v.defines)
			if violated := errors != "0"; violated != v.violated {
				t.Errorf("errors: %s after %s states, want violated: %v", errors, states, v.violated)
			}
			t.Logf("errors: %s after %s states", errors, states)
		})
	}
}

var (
	errorsLine = regexp.MustCompile(`errors: (\d+)`)
	statesLine = regexp.MustCompile(`(\d+) states, stored`)
	incomplete = regexp.MustCompile(`max search depth too small|out of memory|Search not completed`)
)

// check runs spin on the model and reports the number of errors and of states. A search that was
// cut short without an error is no verdict.
func check(t *testing.T, model, defines string) (errors, states string) {
	t.Helper()
	dir := t.TempDir()
	var args []string
	for d := range strings.FieldsSeq(defines) {
		args = append(args, "-D"+d)
	}
	command(t, dir, "spin", append(args, "-a", model)...)
	level, hash := "-O0", "-w20"
	if *all {
		level, hash = "-O2", "-w26"
	}
	command(t, dir, "cc", level, "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c")
	out := command(t, dir, filepath.Join(dir, "pan"), "-m3000000", hash)
	found, stored := errorsLine.FindStringSubmatch(out), statesLine.FindStringSubmatch(out)
	if found == nil || stored == nil || found[1] == "0" && incomplete.MatchString(out) {
		t.Fatalf("no verdict:\n%s", out)
	}
	return found[1], stored[1]
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, bytes.TrimSpace(out))
	}
	return string(out)
}
