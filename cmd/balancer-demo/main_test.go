package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

// TestMain runs a balancer or a whole demo if the arguments request it. Otherwise it runs the
// tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "balancer" {
		main()
	}
	if len(os.Args) > 1 && os.Args[1] == "whole-demo" { // for tests that end the demo by a signal
		os.Args = append(os.Args[:1], os.Args[2:]...)
		main()
	}
	effort.Main(m)
}

func call(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

// The exit code of a usage error is 2, and the message names the wrong flag or argument.
func TestRun_WrongCall_Exit2(t *testing.T) {
	t.Setenv("MONGODLM_URI", "")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no such command":      {[]string{"dance"}, "dance"},
		"no processes":         {[]string{"--processes", "0"}, "--processes"},
		"too many processes":   {[]string{"--processes", "51"}, "--processes"},
		"timing contradicts":   {[]string{"--ping", "3s"}, "--ping"},
		"unknown flag":         {[]string{"--nonsense"}, "nonsense"},
		"argument left over":   {[]string{"extra-word", "x"}, "extra-word"},
		"metrics nowhere":      {[]string{"--metrics", "host"}, "--metrics"},
		"too few ports":        {[]string{"--metrics", "65534"}, "--metrics"},
		"balancer without URI": {[]string{"balancer"}, "--uri"},
		"load without URI":     {[]string{"load"}, "--uri"},
	} {
		code, _, errOut := call(t, c.args...)
		if code != 2 || !strings.Contains(errOut, c.want) {
			t.Errorf("%s: exit %d, %q; want 2 and %q named", name, code, errOut, c.want)
		}
	}
}

// No help text and no error contains the password of a connection string.
func TestRun_PasswordIsNeverPrinted(t *testing.T) {
	t.Setenv("MONGODLM_URI", "mongodb://user:s3cret@127.0.0.1:1/?serverSelectionTimeoutMS=100")
	for _, args := range [][]string{{"-h"}, {"load", "-h"}, {"balancer", "-h"}, {"load"},
		{"--nonsense"}} {
		if _, out, errOut := call(t, args...); strings.Contains(out+errOut, "s3cret") {
			t.Errorf("%v prints the password:\n%s%s", args, out, errOut)
		}
	}
}

// The error for an unreadable cluster file names the file.
func TestRun_BrokenClusterFile_IsNamed(t *testing.T) {
	t.Setenv("MONGODLM_URI", "")
	path := filepath.Join(t.TempDir(), "broken.json")
	assert.Must(t, os.WriteFile(path, []byte("{\"_id\": \n"), 0o600))
	for _, file := range []string{path, path + ".missing"} {
		code, _, errOut := call(t, "--cluster", file)
		if code != 1 || !strings.Contains(errOut, file) {
			t.Errorf("exit %d, %q; want 1 and the file named", code, errOut)
		}
	}
}

// The referee finds no violation in a short demo of two balancer processes on the embedded server.
func TestRun_FewRounds_NothingViolated(t *testing.T) {
	t.Setenv("MONGODLM_URI", "")
	code, out, errOut := call(t, "--processes", "2", "--no-faults", "--cluster", smallCluster(t))
	for _, want := range []string{
		`the cluster is balanced`, `#1 round: acquired the lock after`,
		`#2 round: acquired the lock after`,
		`\n(\d+\.[1-9]|[1-9]\d*\.0)s #\d round`, `\n  all +\d+ +11\n`, `a +24 +13\n`, `b +0 +11\n`,
		`faults survived 0 of 0`, `violations none`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the output has no match of %s", want)
		}
	}
	if code != 0 || t.Failed() {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
}

// smallCluster writes a cluster file with 24 chunks on shard a and none on shard b. On a loaded
// machine the second balancer may start a second after the first. With 24 chunks it still finds
// work.
func smallCluster(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	text.WriteString(`{"_id":"a","host":"h"}{"_id":"b","host":"h"}{"_id":"db.x","key":{"x":1}}`)
	for i := range 24 {
		text.WriteString(fmt.Sprintf(`{"_id":"c%d","ns":"db.x","min":{"x":%d},"max":{"x":%d},"shard":"a",`+
			`"lastmod":{"$timestamp":{"t":1,"i":%d}}}`, i, i, i+1, i))
	}
	path := filepath.Join(t.TempDir(), "small.json")
	assert.Must(t, os.WriteFile(path, []byte(text.String()), 0o600))
	return path
}

// The demo serves its page only to this machine. The error for another address names the
// alternative, the command "distlock ui".
func TestParse_PageForOtherMachines_Refused(t *testing.T) {
	t.Parallel()
	for addr, text := range map[string]string{
		"127.0.0.1:0": "", "localhost:8087": "", ":8087": "distlock ui", "0.0.0.0:8087": "distlock ui",
		"8087": "give a host and a port",
	} {
		_, err := parse("demo", []string{"--http", addr}, io.Discard)
		if text == "" && err != nil || text != "" &&
			(err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("--http %s: %v, want %q", addr, err, text)
		}
	}
}
