package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// offered returns the completion candidates for the last word.
func offered(t *testing.T, words ...string) string {
	t.Helper()
	out := cli(t, append([]string{cobra.ShellCompNoDescRequestCmd}, words...)...).want(t, 0).out
	// The text after the colon is the directive for the shell.
	lines := strings.Fields(out[:strings.LastIndex(out, ":")])
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

// Commands and flags are completed, and each shell has a completion script.
func TestCompletion_CommandsFlagsAndShells(t *testing.T) {
	t.Setenv(envURI, "")
	for line, want := range map[string]string{
		"ver":                          "version",
		"locks --hel":                  "--held --help",
		"doctor --ro":                  "--role --rounds",
		"run job --sh":                 "--shared",
		"locks --uri mongodb://h --js": "--json",
	} {
		if got := offered(t, strings.Split(line, " ")...); got != want {
			t.Errorf("%q: want %q, got %q", line, want, got)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		cli(t, "completion", shell).want(t, 0, "distlock", cobra.ShellCompRequestCmd)
	}
	for _, wrong := range [][]string{{}, {"tcsh"}} {
		if r := cli(t, append([]string{"completion"}, wrong...)...).want(t, exitUsage); r.out != "" {
			t.Errorf("%q: a shell would carry out %q", wrong, r.out)
		}
	}
}

// A password on the command line is not shown, although package cobra prints the typed words when
// it cannot complete them.
func TestCompletion_PasswordOnTheLine_IsNotShown(t *testing.T) {
	t.Parallel()
	args := self(t, "distlock", cobra.ShellCompRequestCmd, "mongodb://operator:s3cret@h", "")
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil || strings.Contains(string(out), "s3cret") {
		t.Errorf("%v: %s", err, out)
	}
}
