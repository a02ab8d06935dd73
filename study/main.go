// Command study plays how each generation of mongos' lock fails, and this module's lock beside
// them. It needs no server: the store is in memory, and time is virtual.
//
//	go run ./study [CASE] [flags]
//	go run ./study others [flags]
//	go run ./study sources [CASE] [flags]
//	go run ./study sweep [SWEEP] [flags]
//	go run ./study search [flags]
//
// "sources" prints the lines of the server's source that make each play come out as it does.
// Without a CASE it plays all cases and shows what came of them; with one it shows what decided it,
// a lane for each process; "others" plays those that Redlock, an etcd lease and a ZooKeeper node
// play, by them. A part of a name, or the number of a hole, finds the cases that have it.
// "sweep" turns one knob until two hold the lock, "search" tries accidents at random.
// docs/study.md is a course, docs/semantics.md explains the holes.
//
// "TWO for 10m" says for how long two processes that ran took themselves for the holder, "nobody
// for 15m" for how long somebody wanted the lock and no holder worked; "stale written" counts the
// writes of a holder that went in after one of a newer holder.
//
// The exit code is 0 when it is done, 1 when that failed, 2 after a wrong call.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"mongodlm/study/internal/study"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// A call is what was asked for.
type call struct {
	cases       []study.Case
	one         bool // a case was named
	generations []study.Generation
	html        string // the file of the page
	http        string // where the page with the knobs is served
	verb        string // sweep or search, instead of a case
	sweeps      []study.Sweep
	seed        uint64
	plays       int
	last        time.Duration // of a search, instead of so many plays
	settings    []string      // knobs
	json, wide  bool
	sources     bool // the table of the sources
	view        view
}

// run is the whole program but for the signals. It returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	c, err := parse(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(errOut, "study: %v\n", err)
		return 2
	}
	if err := c.play(ctx, out); err != nil {
		fmt.Fprintf(errOut, "study: %v\n", err)
		return 1
	}
	return 0
}

// parse reads the arguments. Flags may stand before the case and behind it.
func parse(args []string, errOut io.Writer) (*call, error) {
	c := &call{cases: study.Cases(), generations: study.Generations()}
	f := c.flags()
	for {
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(errOut, "go run ./study [CASE] [flags] plays how each generation of "+
				"mongos' lock fails")
			f.SetOutput(errOut)
			f.PrintDefaults()
			return nil, err
		} else if err != nil {
			return nil, err
		}
		if f.NArg() == 0 {
			return c, c.fits(f)
		}
		if err := c.word(f.Arg(0)); err != nil {
			return nil, err
		}
		args = f.Args()[1:]
	}
}

func (c *call) flags() *flag.FlagSet {
	f := flag.NewFlagSet("study", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Func("generation", "play only this `NAME`: 1.6, 1.8, 2.0, 2.6, 3.2, ours, or a release "+
		"such as 2.4.14", c.generation)
	f.Func("set", "play the case with a knob set: `KNOB=VALUE`, such as B.clock=+20m or pause=14m; "+
		"more than once", c.set)
	f.StringVar(&c.html, "html", "", "write a page about all cases to this `FILE`, and nothing else")
	f.StringVar(&c.http, "http", "", "serve a page at this `ADDRESS`, such as :8080, on which the "+
		"knobs of a case are turned; without a host at this machine only")
	f.Uint64Var(&c.seed, "seed", 1, "what the accidents of a search hang on")
	f.IntVar(&c.plays, "plays", 1000, "after so many plays a search of a generation ends")
	f.DurationVar(&c.last, "for", 0, "it ends after this time instead")
	f.BoolVar(&c.json, "json", false, "print what came of it as JSON; of one case all that "+
		"happened: times in ms since 12:00, processes counted from 0, and -1 for the server")
	f.Func("from", "show what happened from a `TIME` on: 12:18 or 12:18:30", c.view.from.set)
	f.Func("until", "show what happened until a `TIME`", c.view.until.set)
	f.BoolVar(&c.view.all, "all", false, "show every ping and every poll, too")
	f.BoolVar(&c.wide, "wide", false, "do not fit the lines to the terminal")
	return f
}

// fits refuses flags for which the rest of the call has no use, and sets the knobs.
func (c *call) fits(f *flag.FlagSet) error {
	more, search := false, false
	f.Visit(func(set *flag.Flag) {
		ofSearch := slices.Contains([]string{"seed", "plays", "for"}, set.Name)
		search = search || ofSearch
		more = more || !ofSearch && set.Name != "generation" && set.Name != "wide"
	})
	switch {
	case c.html+c.http != "" &&
		(f.NFlag() > 1 || c.verb != "" || c.sources || len(c.cases) < len(study.Cases())):
		return errors.New("--html and --http are for all cases by all generations: nothing beside it")
	case c.verb != "" && more:
		return fmt.Errorf("%s takes --generation only, and search --seed, --plays and --for", c.verb)
	case search && c.verb != "search":
		return errors.New("--seed, --plays and --for are for search")
	case c.plays < 1 || c.last < 0:
		return errors.New("--plays is at least 1, and --for at least 1ns")
	case c.view.until != 0 && c.view.until < c.view.from:
		return errors.New("--until is before --from")
	case c.view != (view{}) && !c.one:
		return errors.New("--from, --until and --all are for what happened in the play of one case")
	case len(c.settings) > 0 && !c.one:
		return errors.New("--set is for the play of one case: name it")
	}
	return c.turn()
}

// word reads an argument that is no flag.
func (c *call) word(name string) error {
	switch {
	case c.verb == "sweep" && len(c.sweeps) > 1:
		sw, names, ok := study.FindSweep(name)
		if !ok {
			return fmt.Errorf("there is no sweep %.60q; there are %s", name, strings.Join(names, ", "))
		}
		c.sweeps = []study.Sweep{sw}
	case c.verb != "":
		return fmt.Errorf("unexpected argument %.60q after %s", name, c.verb)
	case name == "sweep", name == "search":
		c.verb, c.sweeps = name, study.Sweeps()
	case name == "sources" && !c.sources:
		c.sources = true
	case len(c.cases) < len(study.Cases()):
		return fmt.Errorf("unexpected argument %.60q after the name of the case", name)
	case name == "others":
		c.cases, c.generations = study.OthersCases(), study.Others()
	default:
		found, nearest := study.FindCases(name)
		if len(found) == 0 {
			return fmt.Errorf("there is no case %.60q; most like it are %s; without a name all are played",
				name, strings.Join(nearest, ", "))
		}
		c.cases, c.one = found, len(found) == 1
	}
	return nil
}

func (c *call) generation(name string) error {
	g, names, ok := study.FindGeneration(name)
	if !ok {
		return fmt.Errorf("there are %s, and releases such as 2.4.14", strings.Join(names, ", "))
	}
	c.generations = []study.Generation{g}
	return nil
}

// set notes a knob; the generation may be set like one.
func (c *call) set(text string) error {
	if name, of := strings.CutPrefix(text, "generation="); of {
		return c.generation(name)
	}
	c.settings = append(c.settings, text)
	return nil
}

// turn sets the knobs of the case.
func (c *call) turn() error {
	if len(c.settings) == 0 {
		return nil
	}
	one, err := c.cases[0].With(c.settings...)
	if err != nil {
		return fmt.Errorf("--set: %w", err)
	}
	c.cases = []study.Case{one}
	return nil
}

// serve serves the page with the knobs until ctx ends.
func (c *call) serve(ctx context.Context, out io.Writer) error {
	host, port, err := net.SplitHostPort(c.http)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp",
		net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port))
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	fmt.Fprintf(out, "http://%s/ (Ctrl-C ends it)\n", listener.Addr())
	server := &http.Server{Handler: study.Desk(), ReadHeaderTimeout: 10 * time.Second}
	end := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer end()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("--http: %w", err)
	}
	return nil
}

// play plays what was asked for and prints it, or writes the page. A file that cannot be written is
// noticed before anything is played.
func (c *call) play(ctx context.Context, out io.Writer) error {
	if c.http != "" {
		return c.serve(ctx, out)
	}
	switch c.verb {
	case "sweep":
		return c.sweepAll(ctx, out)
	case "search":
		return c.searchAll(ctx, out)
	}
	var page *os.File
	if c.html != "" {
		var err error
		if page, err = os.OpenFile(c.html, os.O_WRONLY|os.O_CREATE, 0o644); err != nil {
			return fmt.Errorf("the page is not written: %w", err)
		}
		defer page.Close() // a second time after all was well
	}
	plays, err := study.Run(ctx, c.cases, c.generations)
	if err != nil {
		if info, known := os.Stat(c.html); known == nil && info.Mode().IsRegular() && info.Size() == 0 {
			_ = os.Remove(c.html) // it was made for the page that does not come
		}
		return err
	}
	var b bytes.Buffer
	columns := columns(out)
	if c.wide {
		columns = 0
	}
	switch {
	case page != nil:
		others, err := study.Run(ctx, study.OthersCases(), study.Others())
		if err != nil {
			return err
		}
		return c.write(page, out, study.Page(c.cases, c.generations, plays, others))
	case c.json:
		err = c.report(&b, plays)
	case c.sources:
		sources(&b, c.cases, plays, columns)
	case c.one:
		timelines(&b, c.cases[0], plays, columns, c.view)
	default:
		table(&b, c.cases, c.generations, plays, columns)
	}
	if err == nil {
		_, err = out.Write(b.Bytes())
	}
	return err
}

// write writes the page over what was in its file.
func (c *call) write(file *os.File, out io.Writer, page string) error {
	_, err := file.WriteString(page)
	if info, known := file.Stat(); known == nil && info.Mode().IsRegular() && err == nil {
		err = file.Truncate(int64(len(page))) // a longer one was there
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("the page is not written: %w", err)
	}
	fmt.Fprintf(out, "%s: %d cases by %d generations\n", c.html, len(c.cases), len(c.generations))
	return nil
}

// report prints the plays for a program to read.
func (c *call) report(w io.Writer, plays []study.Play) error {
	var all []study.Report
	for i, one := range c.cases {
		all = append(all, study.ReportOf(one, of(plays, i, len(c.generations)), c.one))
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if c.one {
		return enc.Encode(all[0])
	}
	return enc.Encode(all)
}

// of returns the plays of the i-th case by n generations.
func of(plays []study.Play, i, n int) []study.Play { return plays[i*n : (i+1)*n] }

// columns is the width of the terminal, or the COLUMNS of a program that shows this on one; 0: no
// bound.
func columns(out io.Writer) int {
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	n, _ := strconv.Atoi(os.Getenv("COLUMNS")) // 0 when it is no number
	return max(n, 0)
}
