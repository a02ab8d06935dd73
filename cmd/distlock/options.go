package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A command is one word after distlock, with its flags.
type command interface {
	// flags declares the flags.
	flags(f *flag.FlagSet)
	// accept takes what stands beside the flags and checks everything; its errors are those of a
	// wrong call. It reads no more than the files that are named.
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
	warn  func(string)    // tells of what is allowed but not wise
}

// A topic is what the help knows of a command.
type topic struct {
	name, usage, summary, text string
	make                       func() command
	codes                      codes
	exits                      string
}

func topics() []topic {
	plain := codes{exitFailed, exitUsage}
	return []topic{
		{"doctor", "[flags]", "is this server fit to keep locks, and what can it do", doctorText,
			func() command { return &doctor{} }, plain, exitText},
		{"locks", "[NAME] [flags]", "who holds what, why, for how long, how old is the ping", locksText,
			func() command { return &locks{} }, plain, exitText},
		{"waiters", "[NAME] [flags]", "who waits for what, in which place, for how long", waitersText,
			func() command { return &waiters{} }, plain, exitText},
		{"show", "NAME [flags]", "all of one lock: holders, line, evidence, what if the holder died now", showText,
			func() command { return &showing{} }, plain, exitText},
		{"ps", "[flags]", "the processes: how old their pings are, what they hold and wait for", psText,
			func() command { return &processes{} }, plain, exitText},
		{"watch", "[flags]", "locks and lines, live", watchText,
			func() command { return &watching{} }, plain, exitText},
		{"history", "[NAME] [flags]", "what happened to the locks, newest first: who held, lost, took over, broke",
			historyText, func() command { return &past{} }, plain, exitText},
		{"loops", "[flags]", "what runs on one process of many, when it ran, what is stopped", loopsText,
			func() command { return &loops{} }, plain, exitText},
		{"claims", "COLLECTION [flags]", "how many rows of a collection are ready, claimed, retrying, dead",
			claimsText, func() command { return &claims{} }, plain, exitText},
		{"break", "NAME --fence N --why TEXT [flags]",
			"free a lock by force, if it still is as you saw it", breakText,
			func() command { return &breaker{} }, plain, exitText},
		{"ui", "[flags]", "all of that as a page, live, in a browser", uiText,
			func() command { return &page{} }, plain, exitText},
		{"run", "NAME [flags] -- COMMAND ARG...", "run a command while holding a lock", runText,
			func() command { return &runner{} }, codes{exitNotRun, exitWrongCall}, runExitText},
		{"bench", "[flags]", "how fast locks, hand-overs and claims are on this server", benchText,
			func() command { return &bench{} }, plain, exitText},
		{"serve", "--dir FOLDER [flags]", "be a config server, for those who have none", serveText,
			func() command { return &serve{} }, plain, exitText},
		{"completion", "SHELL", "words and names completed by bash, zsh or fish", completionText,
			func() command { return &completion{} }, plain, exitText},
		{"version", "", "which build this is", versionText,
			func() command { return &version{} }, plain, exitText},
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
		return cmd.secrets(), exit{t.codes.usage, err}
	}
	c.warn = func(text string) { fmt.Fprintf(s.errOut, "distlock %s: warning: %s\n", t.name, text) }
	if err := cmd.accept(c); err != nil {
		return cmd.secrets(), exit{t.codes.usage, err}
	}
	return cmd.secrets(), cmd.run(ctx, s)
}

// parse reads flags that may stand before, between and behind the other arguments, up to "--".
func parse(f *flag.FlagSet, args []string) (call, error) {
	c := call{given: map[string]bool{}}
	if i := slices.Index(args, "--"); i >= 0 {
		args, c.after, c.split = args[:i], args[i+1:], true
	}
	args = joined(f, args)
	for {
		if err := f.Parse(args); err != nil {
			return c, remedied(f, err)
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

// remedied says what a value must be, where package flag says only that it cannot read it.
func remedied(f *flag.FlagSet, err error) error {
	text, unread := strings.CutSuffix(err.Error(), ": parse error")
	if !unread {
		return err
	}
	must := "a whole number"
	if one := f.Lookup(text[strings.LastIndex(text, " -")+len(" -"):]); one != nil {
		switch one.Value.(flag.Getter).Get().(type) { // only those of package flag say so
		case time.Duration:
			must = "a time with its unit, such as 30s or 15m"
		case bool:
			must = "true or false"
		}
	}
	return fmt.Errorf("%s: it must be %s", text, must)
}

// joined writes a flag whose value may be left out and the word behind it as one, if that is a
// value for it: package flag would take the word for an argument.
func joined(f *flag.FlagSet, args []string) []string {
	var all []string
	for i := 0; i < len(args); i++ {
		word := args[i]
		if flagged := f.Lookup(strings.TrimLeft(word, "-")); flagged != nil && word[0] == '-' {
			v, optional := flagged.Value.(interface{ takes(string) bool })
			if optional && i+1 < len(args) && v.takes(args[i+1]) {
				i++
				word += "=" + args[i]
			}
		}
		all = append(all, word)
	}
	return all
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
	if problem := badText(args[0], maxText); args[0] == "" || problem != "" {
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
