package main

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

const root = "../../.."

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What cannot be taken out is refused as a wrong call, and the nearest names are told.
func TestRun_UnknownRule_NamesTheNearest(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		"no reep": "no reap", "release by _id alone": "mistake of a store", "1": "mistake of a store", "0": "most like it",
		"a dead holder's write is taken": "which the study does not play",
	} {
		var out, errOut bytes.Buffer
		if code := run(root, []string{rule, "pause"}, &out, &errOut); code != usage || !strings.Contains(errOut.String(), want) {
			t.Errorf("%q: %d, %s", rule, code, &errOut)
		}
	}
	if code := run(root, nil, &bytes.Buffer{}, &bytes.Buffer{}); code != usage {
		t.Errorf("no rule: %d", code)
	}
}

// With a rule taken out the case shows what it was there for.
func TestRun_WithoutARule_TheHoleIsOpen(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: the command line is compiled and linked")
	}
	var out, errOut bytes.Buffer
	if code := run(root, []string{"no reap", "late-grab"}, &out, &errOut); code != 0 ||
		!strings.Contains(out.String(), "== ours: one holder, stuck") {
		t.Errorf("%d: %s\n%s", code, &out, &errOut)
	}
}
