package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mongodlm/catalog"
)

// A command is a subcommand of distlock, with its flags.
type command interface {
	flags(f *pflag.FlagSet)
	// accept receives the arguments that are not flags, and validates the whole command line. Each
	// error is a usage error. accept may read a file that a flag names, and no other file.
	accept(c call) error
	run(ctx context.Context, s stdio) error
}

// A call is the parsed command line of a command.
type call struct {
	*pflag.FlagSet
	stdio // for warnings
}

// A topic describes a command. The rest of the help of the command is a file in the folder help.
type topic struct {
	name, usage, summary string
	command
}

func topics() []topic {
	return []topic{
		{"doctor", "", "check whether this server is fit to keep locks, and what it supports", &doctor{}},
		{"locks", "[NAME]", "holders and waiters, or all details of one lock, with a forecast", &locks{}},
		{"ps", "", "the processes: the ages of their pings, their locks and queue entries", &processes{}},
		{"history", "[NAME]", "the events of locks, newest first: acquired, lost, taken over, broken",
			&events{}},
		{"loops", "[NAME]", "the loops and schedules, or the latest rounds of one: times, processes, " +
			"durations, failures", &loops{}},
		{"claims", "[COLLECTION] [--dead] [--retry ID] [--discard ID]", "the queues, or the rows of " +
			"one: their numbers, and the dead rows, to retry or remove", &claims{}},
		{"break", "NAME --fence N --why TEXT", "free a lock by force, if it is unchanged", &breaker{}},
		{"ui", "", "all of this as a live page in a browser", &page{}},
		{"run", "NAME [flags] -- COMMAND ARG...", "run a command while holding a lock", &runner{}},
		{"serve", "--dir FOLDER", "run a config server, where there is no MongoDB", &serve{}},
		{"version", "", "the version of this build", version{}},
	}
}

// root returns the root command. Its errors are of type exit.
func root(s stdio) *cobra.Command {
	top := &cobra.Command{
		Use: "distlock", Long: rootText, SilenceErrors: true, SilenceUsage: true,
		Args:                       cobra.ArbitraryArgs,
		SuggestionsMinimumDistance: 2,
	}
	top.SetOut(s.out)
	top.SetErr(s.errOut)
	top.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if before := c.Flags().Args(); c == top && len(before) > 0 {
			return unknown(top, before[0])
		}
		return exit{exitUsage, fmt.Errorf("%w; name a command; distlock -h lists them",
			wrongFlag(c.Flags(), err))}
	})
	build := top.Flags().Bool("version", false,
		"print the version of this build, like the command version")
	top.RunE = func(c *cobra.Command, args []string) error {
		if *build && len(args) == 0 {
			return version{}.run(c.Context(), s)
		}
		if len(args) > 0 {
			return unknown(top, args[0])
		}
		top.SetOut(s.errOut)
		return exit{exitUsage, top.Help()}
	}
	top.SetHelpCommand(&cobra.Command{Use: "help [COMMAND]",
		Short: "the help of a command, and its flags", RunE: func(_ *cobra.Command, args []string) error {
			found, rest, err := top.Find(args)
			if err == nil && len(rest) > 0 {
				err = unknown(top, rest[0])
			}
			if err != nil {
				return err
			}
			return found.Help()
		}})
	for _, t := range topics() {
		top.AddCommand(t.of(s))
	}
	top.InitDefaultCompletionCmd()
	if c, _, err := top.Find([]string{"completion"}); err == nil && c != top {
		c.RunE = func(*cobra.Command, []string) error { // otherwise a shell would execute the help
			return exit{exitUsage, errors.New("give the shell: bash, zsh, fish or powershell")}
		}
	}
	return top
}

func unknown(top *cobra.Command, word string) error {
	text := fmt.Sprintf("there is no command %q", shown(catalog.RedactUserInfo(word), 60))
	if like := top.SuggestionsFor(word); len(like) > 0 {
		text += "; did you mean " + strings.Join(like, " or ") + "?"
	} else {
		text += "; distlock -h lists them"
	}
	return exit{exitUsage, errors.New(text)}
}

// of returns the command for package cobra.
func (t topic) of(s stdio) *cobra.Command {
	failed, usage, exits := exitFailed, exitUsage, exitText
	if t.name == "run" {
		failed, usage, exits = exitNotRun, exitWrongCall, runExitText
	}
	coded := func(code int, err error) error {
		e := exit{code, err}
		errors.As(err, &e)
		c, connects := t.command.(interface{ withoutPassword(string) string })
		if connects && e.error != nil {
			e.error = errors.New(c.withoutPassword(e.Error()))
		}
		return e
	}
	help, err := helpFiles.ReadFile("help/" + t.name + ".txt")
	if err != nil {
		panic(err) // the text is part of the program
	}
	c := &cobra.Command{Use: strings.TrimSpace(t.name + " " + t.usage), Short: t.summary,
		Long: strings.TrimSpace(string(help) + "\n" + exits), Args: cobra.ArbitraryArgs}
	t.flags(c.Flags())
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return coded(usage, wrongFlag(c.Flags(), err))
	})
	c.RunE = func(c *cobra.Command, _ []string) error {
		s.command = c.CommandPath()
		if err := t.accept(call{c.Flags(), s}); err != nil {
			return coded(usage, err)
		}
		if err := t.run(c.Context(), s); err != nil {
			return coded(failed, err)
		}
		return nil
	}
	return c
}

// valid describes the valid values of a flag, by its name or its type.
var valid = map[string]string{
	"bool":     "true or false",
	"duration": "a time with its unit (ms, s, m, h), such as 30s or 15m",
	"since":    "a time with its unit (s, m, h, d), such as 30s or 7d",
	"wait":     "a time such as 30s, or " + forever,
}

// wrongFlag describes the valid values of a flag. It omits the given value, because the value may
// be a password.
func wrongFlag(flags *pflag.FlagSet, err error) error {
	var value *pflag.InvalidValueError
	var name *pflag.NotExistError
	switch {
	case errors.As(err, &value):
		flag := value.GetFlag()
		return fmt.Errorf("--%s must be %s", flag.Name,
			cmp.Or(valid[flag.Name], valid[flag.Value.Type()], "a whole number"))
	case errors.As(err, &name) && len(name.GetSpecifiedShortnames()) > 1:
		return fmt.Errorf("unknown flag: -%.1s...; flags begin with --", name.GetSpecifiedName())
	case errors.As(err, &name):
		if like := similarFlags(flags, name.GetSpecifiedName()); len(like) > 0 {
			return fmt.Errorf("%w; did you mean --%s?", err, strings.Join(like, " or --"))
		}
	}
	return err
}

func similarFlags(flags *pflag.FlagSet, typed string) []string {
	names := &cobra.Command{SuggestionsMinimumDistance: 2}
	flags.VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return names.SuggestionsFor(typed)
}

// likeTime matches a time. The unit may be one that Go does not know, such as 5min.
var likeTime = regexp.MustCompile(
	`(?i)^\d+(\.\d+)?(ms|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)$`)

// joinWait joins the arguments --wait and TIME into --wait=TIME. The value of --wait is optional,
// so package pflag would treat TIME as a separate argument. If TIME has an unknown unit, joinWait
// joins it too, so that the error is about --wait.
func joinWait(args []string) []string {
	all := slices.Clone(args)
	for i := 0; i+1 < len(all) && all[i] != "--"; i++ {
		next := all[i+1]
		if all[i] == "--wait" && (new(waitLimit).set(next) == nil || likeTime.MatchString(next)) {
			all[i] += "=" + next
			all = slices.Delete(all, i+1, i+2)
		}
	}
	return all
}

func (c call) noArguments() error {
	if c.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; flags begin with --",
			shown(catalog.RedactUserInfo(c.Arg(0)), 60))
	}
	return nil
}

// lockName validates and returns the only argument, the name of a lock.
func lockName(args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", errors.New("the name of the lock is missing")
	case len(args) > 1:
		return "", fmt.Errorf("unexpected argument %q after the name of the lock",
			shown(catalog.RedactUserInfo(args[1]), 60))
	}
	if problem := catalog.BadText(args[0], maxText); args[0] == "" || problem != "" {
		return "", fmt.Errorf("bad lock name: it %s", cmp.Or(problem, "is empty"))
	}
	return args[0], nil
}

// optionalLock returns the name of the lock that the arguments name, or "" without arguments.
func (c call) optionalLock() (string, error) {
	if c.NArg() == 0 {
		return "", nil
	}
	return lockName(c.Args())
}

// forever is the value of --wait for a wait without a limit. The flag without a value has the same
// meaning.
const forever = "forever"

// waitLimit is the value of the flag --wait.
type waitLimit struct {
	limit   time.Duration
	forever bool
}

// set parses a value of the flag.
func (p *waitLimit) set(value string) (err error) {
	p.forever, p.limit = value == forever, 0
	if !p.forever {
		p.limit, err = time.ParseDuration(value)
	}
	return err
}

// parseDays parses a duration that may begin with days, such as 7d or 1d12h.
func parseDays(value string) (time.Duration, error) {
	if whole, rest, found := strings.Cut(value, "d"); found {
		n, err := strconv.ParseInt(whole, 10, 32)
		if err != nil {
			return 0, err
		}
		value = fmt.Sprintf("%dh%s", 24*n, rest)
	}
	return time.ParseDuration(value)
}
