// Command study simulates the failures of the lock of mongos, and plays the same cases with the
// lock of this module. A generation is a version of the lock protocol: one for each range of mongos
// releases with the same protocol, and one for this module. The command needs no server: the store
// is in memory, and time is virtual.
//
//	go run ./study [CASE] [flags]
//	go run ./study sources [CASE] [flags]
//
// Without a CASE the command plays all cases and prints a table of the outcomes. With a CASE it
// prints the verdict for each generation, the deciding line of the server's source, and the reason.
// The flag --timeline adds the events. A CASE may also be a part of a name, or the number of a
// hole. A hole is a known weakness in docs/semantics.md. The command "sources" prints the deciding
// line of each outcome. The file docs/study.md is a course.
//
// The exit code is 0 after success, 1 after a failure, and 2 after a usage error.
//
// # The generations
//
// The files gen18.go, gen20.go and gen32.go imitate the old generations. Each step names its
// original in the server's source: the release, which is a tag of the server's repository, the file
// and the line. The file cases.txt contains the cases with their verdicts.
//
// # Time
//
// A play is a simulation of one case by one generation, in virtual time. A command takes 2 ms to
// the server, and its reply takes 2 ms back. All clocks run at the same rate.
//
// # The judge
//
// A process holds the lock from the reply to its acquisition until it releases the lock, dies, or
// learns that it must not trust the lock. "TWO for 10m" is the time during which two running
// processes were holders. The outcome does not count frozen processes, but the tests of this
// module's lock count them. "idle for 15m" is the longest time during which a living process wanted
// the lock and no holder worked. "stale written" counts the writes of a holder that the resource
// accepted after a write of a newer holder.
//
// # Limits
//
// A lost reply is reported immediately, like a broken connection, and not after a time limit. If a
// reply arrives and its time limit ends while the process is frozen, the case is played in both
// orders.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// A call is a parsed command line.
type call struct {
	cases       []Case
	generations []Generation
	html        string // file of the page
	sources     bool   // the command is "sources"
	timeline    bool
	all         bool // the timeline includes pings and polls
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	code := 2
	c, err := parse(args, errOut)
	if err == nil {
		code, err = 1, c.play(ctx, out)
	}
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(errOut, "study: %v\n", err)
	return code
}

func parse(args []string, errOut io.Writer) (*call, error) {
	c := &call{cases: Cases(), generations: Generations()}
	f := flag.NewFlagSet("study", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Func("generation", "play only the generation `NAME`: 1.8, 2.0, 2.6, 3.2 or "+
		"ours", func(name string) error {
		g, err := FindGeneration(name)
		c.generations = []Generation{g}
		return err
	})
	f.StringVar(&c.html, "html", "", "write a page with all cases to `FILE`")
	f.BoolVar(&c.timeline, "timeline", false, "print the timeline of one case, "+
		"without most pings and polls")
	f.BoolVar(&c.all, "all", false, "print the timeline with every ping and every poll")
	var words []string
	for {
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(errOut, "go run ./study [CASE] [flags] shows how each generation of "+
				"mongos' lock fails")
			f.SetOutput(errOut)
			f.PrintDefaults()
			return nil, err
		} else if err != nil {
			return nil, err
		}
		if f.NArg() == 0 {
			return c, c.fits(words, f)
		}
		words, args = append(words, f.Arg(0)), f.Args()[1:]
	}
}

// fits finds the cases that the words name, and checks the flags.
func (c *call) fits(words []string, f *flag.FlagSet) (err error) {
	if len(words) > 0 && words[0] == "sources" {
		c.sources, words = true, words[1:]
	}
	if len(words) > 1 {
		return fmt.Errorf("unexpected argument %.60q", words[1])
	}
	if len(words) > 0 {
		if c.cases, err = FindCases(words[0]); err != nil {
			return err
		}
	}
	switch {
	case c.html != "" && (f.NFlag() > 1 || c.sources || len(words) > 0):
		return errors.New("--html plays all cases by all generations; it takes no case and " +
			"no other flag")
	case (c.timeline || c.all) && !c.one():
		return errors.New("--timeline and --all need the name of one case")
	}
	return nil
}

// one reports whether the command line names a single case.
func (c *call) one() bool { return len(c.cases) == 1 }

func (c *call) play(ctx context.Context, out io.Writer) error {
	plays, err := Run(ctx, c.cases, c.generations)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	switch {
	case c.html != "":
		page := Page(c.cases, c.generations, plays)
		if err := os.WriteFile(c.html, []byte(page), 0o644); err != nil {
			return fmt.Errorf("cannot write the page: %w", err)
		}
		fmt.Fprintf(&b, "%s: %d cases by %d generations\n", c.html, len(c.cases), len(c.generations))
	case c.one() || c.sources:
		c.verdicts(&b, plays)
	default:
		c.table(&b, plays)
	}
	_, err = out.Write(b.Bytes())
	return err
}
