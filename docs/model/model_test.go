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

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

var all = flag.Bool("model.all", false, "check all variants: minutes, and gigabytes of memory")

func TestMain(m *testing.M) { effort.Main(m) }

type verdict string

// The verdicts; a clean search is short, or left out unless -model.all is given.
const (
	short    verdict = "clean"
	long     verdict = "clean, after long"
	violated verdict = "violated"
)

// variants switch one rule off, or add a fault, with the expected verdicts, and how many states
// were searched: of a violated one until the search stopped. Without defines T is 4 ticks, H, for
// which a holder trusts its lock, is 3, and time ends at tick 10. A look that is W old shows the
// end of the tick W before.
var variants = []struct {
	name, defines string
	verdict       verdict
}{
	{"by ts, six ticks", "MAXT=6", short},             // 638,620
	{"condemned, six ticks", "CONDEMN MAXT=6", short}, // 642,332

	{"by ts", "", long}, // 12,237,809
	{"by ts, stopwatch read after the second look (R2 broken)", "END_LATE", violated}, // 21,967
	{"by ts, stopwatch from before the first look (R1)", "START_EARLY", violated},     // 36,791
	{"by ts, deadline from the reply of the ping (R3)", "FROM_ACK", violated},         // 102,185
	{"by ts, revived by a late reply (R4)", "REVIVE", violated},                       // 25,521

	{"condemned", "CONDEMN", long},                                              // 12,284,793
	{"condemned, stopwatch read late (R2)", "CONDEMN END_LATE", long},           // 12,233,234
	{"condemned, revived (R4)", "CONDEMN REVIVE", long},                         // 10,977,012
	{"condemned, revived, read late (R4, R2)", "CONDEMN REVIVE END_LATE", long}, // 10,751,730
	{"condemned, stopwatch early (R1)", "CONDEMN START_EARLY", violated},        // 37,728
	{"condemned, deadline from the reply (R3)", "CONDEMN FROM_ACK", violated},   // 103,368

	{"by ts, H = T", "H=4", long},                     // 13,747,597
	{"by ts, H = T + 1", "H=5", violated},             // 72
	{"condemned, H = T + 1", "CONDEMN H=5", violated}, // 74

	{"by ts, looks 1 old", "STALE=1 MAXT=8", long},                                  // 48,416,025
	{"by ts, looks 2 old", "STALE=2 MAXT=8", long},                                  // 53,306,905
	{"by ts, looks 2 old, H = 2", "STALE=2 H=2 MAXT=8", long},                       // 15,474,650
	{"by ts, looks 3 old (R5)", "STALE=3 MAXT=9", violated},                         // 349,679
	{"by ts, looks 1 old, revived (R4)", "STALE=1 REVIVE", violated},                // 232,036
	{"condemned, looks 2 old", "CONDEMN STALE=2 MAXT=8", long},                      // 53,380,427
	{"condemned, looks 3 old, revived (R4)", "CONDEMN STALE=3 REVIVE MAXT=8", long}, // 81,610,881
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
	model := assert.Value(filepath.Abs("lease.pml"))(t)
	for _, v := range variants {
		if v.verdict == long && !*all {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			errors, states := check(t, model, v.defines)
			if (errors != "0") != (v.verdict == violated) {
				t.Errorf("errors: %s after %s states, want %s", errors, states, v.verdict)
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
