package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"mongodlm/distlock"
)

// A command is one word after distlock, with its flags.
type command interface {
	// flags declares the flags.
	flags(f *flag.FlagSet)
	// accept takes what stands beside the flags and checks everything; its errors are exit
	// code 2. No I/O.
	accept(c call) error
	// run does it.
	run(ctx context.Context, s stdio) error
	// secrets returns the connection string, so that nothing of its user information is shown.
	secrets() string
}

// A call is what stands on the command line beside the flags.
type call struct {
	args  []string        // between the flags
	after []string        // after "--"
	split bool            // there was a "--"
	given map[string]bool // names of the flags that were given
}

// A topic is what the help knows of a command.
type topic struct {
	name, usage, summary, text string
	make                       func() command
}

func topics() []topic {
	return []topic{
		{"doctor", "[flags]", "is this server fit to keep locks, and what can it do", doctorText,
			func() command { return &doctor{} }},
		{"locks", "[flags]", "who holds what, why, since when, how old is the ping", locksText,
			func() command { return &locks{} }},
		{"waiters", "[NAME] [flags]", "who waits for what, in which place, since when", waitersText,
			func() command { return &waiters{} }},
		{"break", "NAME --fence N --why TEXT [flags]",
			"free a lock by force, if it still is as you saw it", breakText,
			func() command { return &breaker{} }},
		{"run", "NAME [flags] -- COMMAND ARG...", "run a command while holding a lock", runText,
			func() command { return &runner{} }},
		{"serve", "--dir FOLDER [flags]", "be a config server, for those who have none", serveText,
			func() command { return &serve{} }},
	}
}

func find(name string) (topic, bool) {
	all := topics()
	i := slices.IndexFunc(all, func(t topic) bool { return t.name == name })
	if i < 0 {
		return topic{}, false
	}
	return all[i], true
}

func names() string {
	var all []string
	for _, t := range topics() {
		all = append(all, t.name)
	}
	return strings.Join(all, ", ")
}

// perform reads the arguments and runs the command. It returns the connection string beside the
// error.
func (t topic) perform(ctx context.Context, args []string, s stdio) (secrets string, err error) {
	cmd := t.make()
	f := flag.NewFlagSet("distlock "+t.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	cmd.flags(f)
	c, err := parse(f, args)
	if errors.Is(err, flag.ErrHelp) {
		t.help(s.out, f)
		return "", err
	}
	if err != nil {
		return cmd.secrets(), exit{exitUsage, err}
	}
	if err := cmd.accept(c); err != nil {
		return cmd.secrets(), exit{exitUsage, err}
	}
	return cmd.secrets(), cmd.run(ctx, s)
}

// parse reads flags that may stand before, between and behind the other arguments, up to "--".
func parse(f *flag.FlagSet, args []string) (call, error) {
	c := call{given: map[string]bool{}}
	if i := slices.Index(args, "--"); i >= 0 {
		args, c.after, c.split = args[:i], args[i+1:], true
	}
	for {
		if err := f.Parse(args); err != nil {
			return c, err
		}
		if f.NArg() == 0 {
			break
		}
		c.args = append(c.args, f.Arg(0))
		args = f.Args()[1:]
	}
	f.Visit(func(given *flag.Flag) { c.given[given.Name] = true })
	return c, nil
}

// nothing refuses arguments beside the flags.
func (c call) nothing() error {
	if rest := append(c.args, c.after...); len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q; flags begin with --", shown(redact(rest[0], ""), 60))
	}
	return nil
}

// lockName takes the only argument, the name of a lock.
func lockName(args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", errors.New("the name of the lock is missing")
	case len(args) > 1:
		return "", fmt.Errorf("unexpected argument %q after the name of the lock",
			shown(redact(args[1], ""), 60))
	}
	if problem := badText(args[0], distlock.MaxNameBytes); args[0] == "" || problem != "" {
		return "", fmt.Errorf("bad name of a lock: it %s", orElse(problem, "is empty"))
	}
	return args[0], nil
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// help tells what there is.
func help(w io.Writer) {
	fmt.Fprint(w, "distlock is the operator's command line of the distributed lock on MongoDB.\n\n")
	for _, t := range topics() {
		fmt.Fprintf(w, "  distlock %-7s %s\n", t.name, t.summary)
	}
	fmt.Fprintf(w, "\nThe server is named by --uri or the environment variable %s.\n"+
		"distlock COMMAND -h tells the flags of a command.\n\n%s", envURI, exitText)
}

// help tells about one command.
func (t topic) help(w io.Writer, f *flag.FlagSet) {
	fmt.Fprintf(w, "distlock %s %s\n\n%s\nFlags:\n", t.name, t.usage,
		strings.TrimPrefix(t.text, "\n"))
	f.SetOutput(w)
	f.PrintDefaults()
	fmt.Fprintf(w, "\n%s", exitText)
}

const exitText = `Exit codes:
  0    done; for run: the command ended with 0
  1    not done: the server is unfit or unreachable, the lock was not as seen, it was lost, or it
       is in use with another number of permits
  2    wrong call
  75   run: somebody else holds the lock, or waiting for it would be a deadlock; try again later
  126  run: the command cannot be executed; 127: there is none of that name
Otherwise run ends with the code of its command, 128 plus the signal when that was killed by one
or when run was interrupted before it began. A command whose lock was lost counts as 1.
`

const doctorText = `
Asks the server what it is and what the database can do there, looks for settings that would harm
locks, and races contenders on scratch documents in that database (a collection
distlock_check_..., removed afterwards). A server that is too old, or whose conditional updates
are not atomic, is refused with exit code 1.
`

const locksText = `
Lists the locks: the holder and its mode, why and since when (server's clock), how old its ping is,
the fence, how many wait. A lock with several holders has a line for each. A free lock shows its
last holder. Reads only; starts no heartbeat.

Marks: foreign (not one of ours: a mongos, or MongoDB's own lock manager), condemned (a contender
declared the holder dead), silent (the ping is older than the takeover time), no ping, bad ping.
Documents that cannot be understood are listed below the table; they are never taken for free and
never taken over.
`

const waitersText = `
Lists who stands in line for locks, or for the lock NAME: the place (1 is the next), the mode, who
and why, how long it has waited and how old its ping is (server's clock). Whoever releases the lock
grants it to the next in the same command. Those who wait inside their processes because a line is
full are not shown. Reads only; starts no heartbeat. The marks are those of "distlock locks".
`

const breakText = `
Frees a lock by force, if it is still held with the fence that "distlock locks" showed. Without
--yes it only shows what is held and who is next in line, and ends with 1. Where others wait, the
next in line is granted the lock at once. Of several holders the one with that fence is taken out.

This is the one operation that can let two holders in: it does not wait. A holder that lives
learns of it only with its next ping, and until then works on. Make sure that it is dead or
stopped first.
`

const runText = `
Acquires the lock, runs the command in a process group of its own and releases the lock when the
group has ended. The command finds the lock in ` + envName + ` and its fencing token in
` + envFence + `. SIGHUP, SIGINT, SIGQUIT and SIGTERM are forwarded to the group. It cannot read
from a terminal.

When the lock is lost the group gets SIGTERM, and SIGKILL after --grace. A heartbeat that fails
ends the lock so early that the SIGKILL comes before anybody may take it over: the margin between
the two is a quarter of --takeover, or --grace and a tenth of --takeover if that is more. A lock
that was broken by force is lost with the next ping; the next holder may be at work by then. What
the command leaves running when it ends is ended in the same way before the lock is released.

If distlock itself is stopped or killed with SIGKILL, nobody ends the command. Let what it changes
check the fence.

With --wait it stands in line for the lock, first come first served; "distlock waiters" shows the
line. With --shared any number may hold the lock at a time, as long as nobody holds it without. With
--permits N at most N may, and all who use the lock at a time must say the same N.

A dead holder is taken over only after it has been watched for three of its ping intervals at
least, so --wait must be longer than that.
`

const serveText = `
Runs a config server in this process until it is interrupted, and prints its connection string. It
is for trying and for tests: one process, this machine only, no passwords.
`
