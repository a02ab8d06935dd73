package model_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

var all = flag.Bool("model.all", false, "check all variants: minutes")

// bound is the time limit of each program that a check runs.
const bound = 10 * time.Minute

func TestMain(m *testing.M) { effort.Main(m) }

type verdict string

// The verdicts of the checker. The variants with the verdicts long and old are checked only with
// -model.all.
const (
	short    verdict = "clean"
	long     verdict = "clean, after long"
	violated verdict = "violated"
	old      verdict = "violated, by a rule of mongos" // the study plays it, too
)

// variants are the variants of the model. Their defines switch a rule off or add a fault. The
// comments are the numbers of states that the checker visited. The checker stops at the first
// violation. By default, T (the takeover time) and H (the time for which a holder trusts its lock)
// are 3 ticks, and time ends at tick 5.
var variants = []struct {
	name, defines string
	verdict       verdict
}{
	{"condemned", "CONDEMN ONE", short},                                               // 106,402
	{"condemned, two contenders", "CONDEMN T=2 H=2 MAXT=3", short},                    // 728,718
	{"condemned, two contenders, four ticks", "CONDEMN MAXT=4", long},                 // 4,658,459
	{"condemned, the server's clock is wrong", "CONDEMN ONE JUMP_SRV=3", short},       // 363,618
	{"condemned, the contender's clock is wrong", "CONDEMN ONE JUMP_OWN=3", short},    // 400,549
	{"condemned, stopwatch read late (R2)", "CONDEMN ONE OWN_ONLY END_LATE", short},   // 38,521
	{"condemned, revived (R4)", "CONDEMN ONE REVIVE", short},                          // 93,154
	{"condemned, looks one tick old (R5)", "CONDEMN ONE STALE", short},                // 155,963
	{"by session", "ONE", short},                                                      // 105,698
	{"by session, looks one tick old (R5)", "ONE STALE", short},                       // 155,597
	{"condemned, early stopwatch (R1)", "CONDEMN ONE OWN_ONLY START_EARLY", violated}, // 4,096
	{"by session, stopwatch read late (R2)", "ONE OWN_ONLY END_LATE", violated},       // 1,930
	{"condemned, deadline from the reply (R3)", "CONDEMN ONE FROM_ACK", violated},     // 6,392
	{"by session, revived (R4)", "ONE REVIVE", violated},                              // 2,773
	{"condemned, H = T + 1", "CONDEMN ONE H=4", violated},                             // 57
	{"by one clock, the contender's, and it is wrong", "CONDEMN ONE OWN_ONLY JUMP_OWN=3", violated},
	{"as 2.0 and 3.2: by one clock, the server's, and it is wrong",
		"ONE SERVER_ONLY JUMP_SRV=3", old},
	{"as all of mongos: the holder has no deadline", "CONDEMN ONE NO_DEADLINE", old},
	{"as 1.8: two forces by _id", "BY_ID", old},
	{"as 1.8: by the age of the ping, the contender's clock is wrong", "ONE AGE JUMP_OWN=3", old},
}

// The checker finds an error exactly in the variants with the verdicts violated and old.
func TestLease_Variants_Verdicts(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"spin", "cc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: the model is not checked", tool)
		}
	}
	model := assert.Value(filepath.Abs("lease.pml"))(t)
	for _, v := range variants {
		if (v.verdict == long || v.verdict == old) && !*all {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			errors, states := check(t, model, v.defines)
			if (errors != "0") != (v.verdict == violated || v.verdict == old) {
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

// check runs spin on the model and returns the numbers of errors and of states. It fails the test
// if the search was cut short without an error.
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
	out := command(t, dir, filepath.Join(dir, "pan"), "-m100000", hash)
	found, stored := errorsLine.FindStringSubmatch(out), statesLine.FindStringSubmatch(out)
	if found == nil || stored == nil || found[1] == "0" && incomplete.MatchString(out) {
		t.Fatalf("no verdict:\n%s", out)
	}
	return found[1], stored[1]
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, bytes.TrimSpace(out))
	}
	return string(out)
}
