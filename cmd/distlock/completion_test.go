package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"mongodlm/catalog"
	"mongodlm/internal/test/bsontest"
)

// offered are the candidates for the last word.
func offered(t *testing.T, words ...string) string {
	t.Helper()
	out := cli(t, append([]string{cobra.ShellCompNoDescRequestCmd}, words...)...).want(t, 0).out
	// behind which stands what the shell may add
	lines := strings.Fields(out[:strings.LastIndex(out, ":")])
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

func TestCompletion_CommandsFlagsAndShells(t *testing.T) {
	t.Setenv(envURI, "")
	for line, want := range map[string]string{
		"ver":                          "version",
		"locks --hel":                  "--held --help",
		"doctor --ro":                  "--role --rounds",
		"run job --sh":                 "--shared",
		"locks --uri mongodb://h --js": "--json",
		"run job -- ls --":             "",
		"completion ":                  "bash fish zsh",
		"no-such-command ":             "",
		"locks ":                       "", // no server is named
	} {
		if got := offered(t, strings.Split(line, " ")...); got != want {
			t.Errorf("%q: want %q, got %q", line, want, got)
		}
	}
	for _, shell := range shells {
		cli(t, "completion", shell).want(t, 0, "distlock", cobra.ShellCompRequestCmd)
	}
	cli(t, "completion", "tcsh").want(t, exitUsage, "bash, zsh or fish")
	cli(t, "completion").want(t, exitUsage, "bash, zsh or fish")
}

// Names come from the server, those that begin as what was typed. What could steer a terminal, or
// what a shell would carry out, is not offered.
func TestCompletion_NamesFromTheServer(t *testing.T) {
	b := newBase(t)
	for _, name := range []string{"job", "job two", "job:a:b", "jab", "$(touch oops)", "it's",
		"job\ty", foreign, "\u202ejob", "claim:" + b.name + ".rows:queue:1"} {
		b.insert(catalog.LocksCollection, bsontest.D("_id", name, "state", int32(0)))
	}
	for line, want := range map[string]string{
		"locks jo":     "job job:a:b",
		"run ja":       "jab",
		"locks $":      "",
		"locks i":      "",
		"locks round":  "",
		"claims ":      "rows",
		"locks job jo": "",
	} {
		words, got := strings.Split(line, " "), ""
		// a busy server does not answer in time, see askLimit
		eventually(t, line+": something is offered", func() bool {
			got = offered(t, append(b.flags(words[:len(words)-1]...), words[len(words)-1])...)
			return got != "" || want == ""
		})
		if got != want {
			t.Errorf("%q: want %s, got %s", line, want, got)
		}
	}
}

// Package cobra tells what was typed when it cannot complete that.
func TestCompletion_PasswordOnTheLine_IsNotShown(t *testing.T) {
	t.Parallel()
	args := self(t, "distlock", cobra.ShellCompRequestCmd, "mongodb://operator:s3cret@h", "")
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil || strings.Contains(string(out), "s3cret") {
		t.Errorf("%v: %s", err, out)
	}
}
