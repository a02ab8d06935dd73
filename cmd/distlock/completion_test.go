package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// offered are the candidates for a line.
func offered(t *testing.T, shell, line string) []string {
	t.Helper()
	var out, errOut screen
	if code := run(t.Context(), []string{askWord, shell}, strings.NewReader(line), &out, &errOut); code != 0 ||
		errOut.String() != "" {
		t.Errorf("%q: code %d, %s", line, code, errOut.String())
	}
	return strings.Fields(strings.ReplaceAll(out.String(), " ", "_"))
}

func TestCompletion_CommandsAndFlags(t *testing.T) {
	t.Setenv(envURI, "")
	for line, want := range map[string]string{
		"distlock wa":                           "waiters watch",
		"VAR=1 /usr/bin/distlock ve":            "version",
		"distlock locks --h":                    "--held",
		"distlock doctor --ro":                  "--role --rounds",
		"distlock run job --sh":                 "--shared",
		"distlock locks --uri ":                 "",
		"distlock locks --uri mongodb://h --js": "--json",
		"distlock run job -- ls --":             "",
		"distlock completion ":                  "bash zsh fish",
		"distlock no-such-command ":             "",
		"distlock locks ":                       "", // no server is named
		"distlock":                              "",
		"":                                      "",
		`distlock locks --uri "mongodb://h`:     "",
		"distlock break --fence ":               "",
		"distlock locks job ":                   "",
	} {
		got := offered(t, "fish", line)
		slices.Sort(got)
		wanted := strings.Fields(want)
		slices.Sort(wanted)
		if !slices.Equal(got, wanted) {
			t.Errorf("%q: want %q, got %q", line, wanted, got)
		}
	}
}

// Names come from the server, those that begin as what was typed. What could steer a terminal is not offered, and what
// a shell would carry out is offered to bash in quotes: it puts candidates into the line as they are.
func TestCompletion_NamesFromTheServer(t *testing.T) {
	b := newBase(t)
	for _, name := range []string{"job", "job two", "job:a:b", "jab", "$(touch oops)", "it's", foreign, "\u202ejob", "claim:" + b.name + ".rows:queue:1"} {
		b.insert(catalog.LocksCollection, bson.D{{Key: "_id", Value: name}, {Key: "state", Value: int32(0)}})
	}
	at := fmt.Sprintf(" --uri '%s' --database %s ", b.uri, b.name)
	for _, c := range []struct{ shell, line, want string }{
		{"fish", "distlock show" + at + "jo", "job job_two job:a:b"},
		{"zsh", "distlock locks" + at + "ja", "jab"},
		{"zsh", "distlock run" + at + "$", "$(touch_oops)"},
		{"bash", "distlock show" + at + "job:a", "a:b"},
		{"bash", "distlock show" + at + "jo", "job 'job_two' job:a:b"},
		{"bash", `distlock show` + at + `"job `, "job_two"},
		{"bash", `distlock show` + at + `job\ `, "'job_two'"},
		{"bash", `distlock show` + at + `\$`, `'$(touch_oops)'`},
		{"bash", `distlock show` + at + `"\$`, ""},
		{"bash", `distlock show` + at + `it`, `'it'\''s'`},
		{"fish", "distlock show" + at + "round", ""},
		{"fish", "distlock claims" + at, "rows"},
		{"fish", "distlock show" + at + "job other", ""},
		{"fish", "distlock show --uri mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100 jo", ""},
	} {
		if got := strings.Join(offered(t, c.shell, c.line), " "); got != c.want {
			t.Errorf("%s: %q: want %s, got %s", c.shell, c.line, c.want, got)
		}
	}
}

// The scripts work in their shells, as far as this machine has them.
func TestCompletion_Scripts_RunInTheirShells(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	words := self(t, "distlock")
	wrapper := fmt.Sprintf("#!/bin/sh\nexec %s %s %s \"$@\"\n", words[0], words[1], words[2])
	if err := os.WriteFile(filepath.Join(dir, "distlock"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	for shell, how := range map[string]struct {
		args []string
		want string
	}{
		"bash": {[]string{"--norc", "-c", `eval "$(distlock completion bash)"; COMP_LINE="distlock wai"; COMP_POINT=12
			_distlock distlock wai distlock; printf '%s\n' "${COMPREPLY[@]}"`}, "waiters"},
		"zsh": {[]string{"-f", "-c", `autoload -U compinit; compinit -D; eval "$(distlock completion zsh)"
			compadd() { shift; print -l -- "$@"; }; words=(distlock wai); CURRENT=2; _distlock`}, "waiters"},
		"fish":       {[]string{"--no-config", "-c", `distlock completion fish | source; complete -C "distlock wai"`}, "waiters"},
		"fish files": {[]string{"--no-config", "-c", `distlock completion fish | source; complete -C "distlock serve --dir "`}, "testdata/"},
	} {
		t.Run(shell, func(t *testing.T) {
			program, _, _ := strings.Cut(shell, " ")
			path, err := exec.LookPath(program)
			if err != nil {
				t.Skip(err)
			}
			cmd := exec.CommandContext(t.Context(), path, how.args...)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil || !slices.Contains(strings.Fields(string(out)), how.want) {
				t.Errorf("%v: want %s in\n%s", err, how.want, out)
			}
		})
	}
	cli(t, "completion", "tcsh").want(t, exitUsage, "bash, zsh or fish")
}
