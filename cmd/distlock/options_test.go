package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog/memcatalog"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

func TestRun_WrongCall_ExitsWithUsage(t *testing.T) {
	t.Setenv(envURI, "")
	cases := []struct {
		name, args, says string
	}{
		{"nothing", "", "whether this server is fit"},
		{"unknown command", "doktor", "there is no command"},
		{"help of an unknown command", "help doktor", "did you mean doctor?"},
		{"unknown flag and no command", "--bogus", "unknown flag: --bogus"},
		{"unknown flag, and an argument of it", "--bogus x", "unknown flag: --bogus"},
		{"unknown flag", "locks --uri mongodb://h --hold", "unknown flag: --hold"},
		{"unknown flag of run", "run --hold", "unknown flag: --hold"},
		{"one dash", "locks -uri=mongodb://h", "flags begin with --"},
		{"no value", "locks --uri", "needs an argument: --uri"},
		{"no value for run", "run a --grace", "needs an argument: --grace"},
		{"no server", "locks", "MONGODLM_URI"},
		{"bad scheme", "locks --uri http://h", "--uri"},
		{"bad database", "locks --uri mongodb://h --database a.b", "--database contains"},
		{"time without a unit", "history --uri mongodb://h --since 12", "such as 30s"},
		{"no number", "history --uri mongodb://h --limit x", "--limit must be a whole number"},
		{"neither true nor false", "locks --uri mongodb://h --json=maybe", "true or false"},
		{"stray argument", "locks --uri mongodb://h held too", "unexpected argument"},
		{"two connection strings", "locks --uri mongodb://h --uri-file f", "mutually exclusive"},
		{"no such uri file", "locks --uri-file /no/such/file", "--uri-file"},
		{"doctor rounds", "doctor --uri mongodb://h --rounds 0", "--rounds"},
		{"doctor contenders", "doctor --uri mongodb://h --contenders 1", "--contenders"},
		{"break without name", "break --uri mongodb://h --fence 1 --why x", "name of the lock"},
		{"break two names", "break a b --uri mongodb://h --fence 1 --why x", "unexpected argument"},
		{"break without fence", "break a --uri mongodb://h --why x", "--fence is missing"},
		{"break negative fence", "break a --uri mongodb://h --fence -1 --why x", "negative"},
		{"break without why", "break a --uri mongodb://h --fence 1", "--why is missing"},
		{"run without command", "run a --uri mongodb://h", "command is missing"},
		{"run empty command", "run a --uri mongodb://h --", "no command"},
		{"run without name", "run --uri mongodb://h -- true", "name of the lock"},
		{"run negative wait", "run a --uri mongodb://h --wait -1s -- true", "--wait"},
		{"run odd wait", "run a --uri mongodb://h --wait=long -- true", "forever"},
		{"run shared with permits", "run a --uri mongodb://h --shared --permits 2 -- true", "exclusive"},
		{"run no permits", "run a --uri mongodb://h --permits 0 -- true", "1 to 1000"},
		{"run too many permits", "run a --uri mongodb://h --permits 1001 -- true", "1 to 1000"},
		{"locks of two", "locks a b --uri mongodb://h", "unexpected argument"},
		{"run ping too long", "run a --uri mongodb://h --ping 10s --takeover 20s -- true",
			"--ping (10s) * 3 must be at most --takeover"},
		{"run no ping", "run a --uri mongodb://h --ping 0 -- true", "--ping is 0s"},
		{"run no takeover time", "run a --uri mongodb://h --takeover 0 -- true", "--takeover is 0s"},
		{"run grace too long", "run a --uri mongodb://h --ping 1s --takeover 10s --grace 9s -- true",
			"at most 6s"},
		{"serve metrics nowhere", "serve --dir d --metrics host", "--metrics"},
		{"run metrics nowhere", "run a --uri mongodb://h --metrics 70000 -- true", "--metrics"},
		{"serve without folder", "serve", "--dir is missing"},
		{"run with a time of another form", "run --uri mongodb://h --wait 5min -- true",
			"--wait must be a time such as 30s, or forever"},
		{"run with a time in days", "run --uri mongodb://h --wait 1d -- true", "must be a time"},
		{"due without a queue", "doctor --uri mongodb://h --due a", "--queue"},
		{"field without a queue", "doctor --uri mongodb://h --field a", "--queue"},
		{"queue with a dollar", "doctor --uri mongodb://h --queue a$b", "not a valid name"},
		{"ui for others without a token", "ui --uri mongodb://h --listen :8087", "--token-file"},
		{"ui with half of TLS", "ui --uri mongodb://h --tls-key k", "go together"},
		{"ui without a pause", "ui --uri mongodb://h --interval 1ms", "at least"},
		{"ui with an argument", "ui extra --uri mongodb://h", "unexpected"},
		{"dead rows of no collection", "claims --uri mongodb://h --dead", "collection is missing"},
		{"claims of two", "claims a b --uri mongodb://h", "one collection"},
		{"two changes", "claims a --uri mongodb://h --dead --retry 1", "one of"},
		{"two changes of rows", "claims a --uri mongodb://h --retry 1 --discard 1", "one of"},
		{"limit of no list", "claims a --uri mongodb://h --limit 5", "--dead"},
		{"list of no row", "claims a --uri mongodb://h --dead --limit 0", "at least 1"},
		{"half of a text", `claims a --uri mongodb://h --retry "x`, "not a quoted string"},
		{"half of a document", "claims a --uri mongodb://h --retry {x", "not extended JSON"},
		{"dotted field", "claims a --uri mongodb://h --field claim.err", "--field"},
		{"field of no collection", "claims --uri mongodb://h --field a", "COLLECTION"},
		{"queue that is not paused", "claims a --uri mongodb://h --queue x", "--queue"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			code := exitUsage
			if strings.HasPrefix(c.args, "run") {
				code = exitWrongCall
			}
			cli(t, strings.Fields(c.args)...).want(t, code, c.says)
		})
	}
}

func TestRun_Help_HasFlagsAndExitCodesAndNoPassword(t *testing.T) {
	t.Setenv(envURI, "mongodb://operator:s3cret@127.0.0.1:1")
	cli(t, "--help").want(t, 0, "serve ", "Exit codes", envDatabase)
	cli(t, "run", "-h").want(t, 0, "75 ", "110 ", "111 ", "112 ", "113 ", "115 ", "116 ")
	for _, topic := range topics() {
		r := cli(t, topic.name, "-h").want(t, 0, "distlock "+topic.name, "Exit codes", "Flags:")
		if strings.Contains(r.out+r.errOut, "s3cret") {
			t.Errorf("%s -h shows the password", topic.name)
		}
	}
}

// No command prints a password of its command line, not even in an error or a log.
func TestEveryCommand_Password_IsNowhere(t *testing.T) {
	t.Parallel()
	with := func(rest string) string { return "mongodb://operator:" + secretEscaped + "@" + rest }
	const closed = "127.0.0.1:1/?serverSelectionTimeoutMS=50&connectTimeoutMS=50" // has no server
	log, locked := filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "locked.pem")
	assert.Must(t, os.WriteFile(locked, pemOf("ENCRYPTED PRIVATE KEY", []byte("x")), 0o600))
	cases := [][]string{
		{with("x")},
		{"help", with("x")},
		{"--nothing", with("x"), with("y")},
		{"locks", "--" + with("x")},
		{"locks", "--json=" + secret},
		{"locks", "-uri=" + with("h"), "--uri", with("h")},
		{"run", "--wait=" + secret},
		{"run", "-" + secret},
		{"locks", with("h") + strings.Repeat("x", 100)},
		{"locks", "--uri", with("h:port")},
		{"locks", "--uri", with("h/%zz?%zz")},
		{"locks", "--uri", with("h") + "/?w=%zz"},
		{"run", "a", "--uri", with(closed), "--", "true"},
	}
	for _, uri := range []string{
		with(closed),
		strings.Replace(uri, "mongodb://", with(""), 1),
		"mongodb://someone:" + secret + "@127.0.0.1:1/",
		"mongodb://someone:" + secretEscaped + "?!@" + closed, // the driver accepts a question mark
		with("127.0.0.1:1/?tls=perhaps"),
		"mongodb://h/?tls=true&" + keyFile(locked) + "&tlsCertificateKeyFilePassword=" + secretEscaped,
	} {
		for _, args := range []string{"doctor --rounds 1 --contenders 2 --log " + log, "locks", "locks a",
			"ps", "loops", "claims rows", "claims rows --dead", "claims rows --retry 1",
			"break a --fence 1 --why x --log " + log, "locks --wrong", "history"} {
			cases = append(cases, append(strings.Fields(args), "--uri", uri))
		}
	}
	for _, args := range cases {
		r := cli(t, args...)
		if r.code == 0 || strings.Contains(r.out+r.errOut, "n0b0dy") {
			t.Errorf("%q: code %d\n%s%s", args, r.code, r.out, r.errOut)
		}
	}
	if logged := assert.Value(os.ReadFile(log))(t); strings.Contains(string(logged), "n0b0dy") {
		t.Errorf("logged:\n%s", logged)
	}
}

// A failing is a command whose error contains the password of its connection string.
type failing struct{ connection }

func (f *failing) run(context.Context, stdio) error { return errors.New("refused " + secret) }

func TestCommand_PasswordInAnError_IsRemoved(t *testing.T) {
	c := topic{"locks", "", "", &failing{}}.of(stdio{})
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs([]string{"--uri", "mongodb://operator:" + secretEscaped + "@h"})
	if err := c.Execute(); err == nil || !strings.Contains(err.Error(), "refused xxx") {
		t.Errorf("the error is %v", err)
	}
}

func TestServe_UntilInterrupted_PrintsItsURI(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	out, ended := start(ctx, t, "serve", "--dir", t.TempDir(), "--addr", "127.0.0.1:0")
	awaitText(t, out.String, "\n")
	served := strings.TrimSpace(out.String())
	cli(t, "locks", "--uri", served).want(t, exitFailed, "nothing was ever locked there")
	interrupt()
	await(t, ended).want(t, 0)
}

func TestPatience_ValueMayBeLeftOut(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]waitLimit{
		"job":                {},
		"job --wait":         {forever: true},
		"--wait job":         {forever: true},
		"--wait=forever job": {forever: true},
		"--wait forever job": {forever: true},
		"job --wait 30s":     {limit: 30 * time.Second},
		"--wait=0 job":       {},
		"--why --wait job":   {},
	} {
		var r runner
		args := parsed(t, &r, line).Args()
		if r.wait != want || !slices.Equal(args, []string{"job"}) {
			t.Errorf("%s: want %+v, got %+v and %q", line, want, r.wait, args)
		}
	}
}

func parsed(t *testing.T, v command, args string) call {
	t.Helper()
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	v.flags(f)
	assert.Must(t, f.Parse(joinWait(strings.Fields(args))))
	return call{FlagSet: f}
}

// All arguments after -- belong to the command, even if they resemble flags or commands of
// distlock.
func TestRunner_BehindTheDashes_NothingIsRead(t *testing.T) {
	const command = "locks run -h --wait 5s --wait=x --uri mongodb://x -- --why"
	b := newBase(t)
	args := append(b.flags("run", "job"), "--", "echo")
	cli(t, append(args, strings.Fields(command)...)...).want(t, 0, command+"\n")
	for first := range strings.FieldsSeq("run locks -h --help --wait") {
		cli(t, append(b.flags("run", "job"), "--", first)...).want(t, exitNotFound, first)
	}
}

func TestCommands_HelpAndOperations_NameTheSame(t *testing.T) {
	t.Parallel()
	var help []string
	for _, c := range root(stdio{}).Commands() {
		help = append(help, c.Name())
	}
	slices.Sort(help)
	const file = "../../docs/operations.md"
	text := assert.Value(os.ReadFile(file))(t)
	var commands []string
	for _, found := range regexp.MustCompile("(?m)(?:^|`|\\()distlock ([a-z]+)").
		FindAllStringSubmatch(string(text), -1) {
		if found[1] != "guardian" { // called only by run
			commands = append(commands, found[1])
		}
	}
	slices.Sort(commands)
	if commands = slices.Compact(commands); !slices.Equal(commands, help) {
		t.Errorf("%s names %q, the help %q", file, commands, help)
	}
}

func TestConnection_URIFile_IsReadAndWarnedOf(t *testing.T) {
	b := newBase(t)
	file := filepath.Join(t.TempDir(), "uri")
	assert.Must(t, os.WriteFile(file, []byte(uri+"\n"), 0o600))
	args := []string{"locks", "--database", b.name, "--uri-file", file}
	if r := cli(t, args...).want(t, exitFailed, "nothing was ever locked"); r.errOut != "" {
		t.Errorf("it said %q", r.errOut)
	}
	assert.Must(t, os.Chmod(file, 0o644))
	cli(t, args...).want(t, exitFailed, "can be read by every user", "chmod 600")
}

// All commands have the same default database. If the database has no locks, the error names the
// database.
func TestConnection_Database_IsOneDefaultAndNamed(t *testing.T) {
	t.Setenv(envURI, uri)
	t.Setenv(envDatabase, "")
	cli(t, "locks").want(t, exitFailed,
		`database "distlock" has no collection locks: nothing was ever locked there`)
	name := "test_" + bson.NewObjectID().Hex()
	t.Setenv(envDatabase, name)
	cli(t, "locks").want(t, exitFailed, fmt.Sprintf("database %q", name))
	cli(t, "locks", "--database", name+"b").want(t, exitFailed, fmt.Sprintf("database %q", name+"b"))
	for _, word := range []string{"version", "--version"} {
		cli(t, word).want(t, 0, "distlock", "commit", "go1.")
	}
}

func TestDefaults_AreThoseOfDistlock(t *testing.T) {
	t.Parallel()
	m, err := distlock.New(t.Context(), distlock.Config{Catalog: memcatalog.New(memcatalog.Options{})})
	assert.Must(t, err)
	defer m.Close(context.Background())
	if c := m.Config(); c.Ping != words.DefaultPing || c.Takeover != words.DefaultTakeover ||
		c.Database != mongosDatabase {
		t.Errorf("distlock has Ping %v, Takeover %v, Database %q", c.Ping, c.Takeover, c.Database)
	}
}

// offered returns the completion candidates for the last word.
func offered(t *testing.T, words ...string) string {
	t.Helper()
	out := cli(t, append([]string{cobra.ShellCompNoDescRequestCmd}, words...)...).want(t, 0).out
	lines := strings.Fields(out[:strings.LastIndex(out, ":")])
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

// The shell can complete commands and flags. Each supported shell has a completion script.
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

// Shell completion prints no password of the command line, although package cobra prints the words
// that it cannot complete.
func TestCompletion_PasswordOnTheLine_IsNotShown(t *testing.T) {
	t.Parallel()
	args := self(t, "distlock", cobra.ShellCompRequestCmd, "mongodb://operator:s3cret@h", "")
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil || strings.Contains(string(out), "s3cret") {
		t.Errorf("%v: %s", err, out)
	}
}
