// Command study plays how each generation of mongos' lock fails, and this module's lock beside
// them. It needs no server: the store is in memory, and time is virtual.
//
//	go run ./study [CASE] [flags]
//
// Without a CASE it plays all cases and shows what came of them; with one it shows what happened, a
// lane for each process. docs/study.md is a course, docs/semantics.md explains the holes that are
// named.
//
// "TWO for 10m" says for how long two processes that ran took themselves for the holder, "nobody
// for 15m" for how long somebody wanted the lock and no holder worked; "stale written" counts the
// writes of a holder that went in after one of a newer holder.
//
// The exit code is 0 when it is done, 1 when that failed, 2 after a wrong call.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

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
	json, wide  bool
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
	f := flag.NewFlagSet("study", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Func("generation", "play only this `NAME`: 1.8, 2.0, 3.2 or ours", func(name string) error {
		g, names, ok := study.FindGeneration(name)
		if !ok {
			return fmt.Errorf("there are %s", strings.Join(names, ", "))
		}
		c.generations = []study.Generation{g}
		return nil
	})
	f.StringVar(&c.html, "html", "", "write a page about all cases to this `FILE`, and nothing else")
	f.BoolVar(&c.json, "json", false, "print what came of it as JSON; of one case all that happened")
	f.BoolVar(&c.wide, "wide", false, "do not fit the lines to the terminal")
	for {
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(errOut, "go run ./study [CASE] [flags] plays how each generation of mongos' lock fails")
			f.SetOutput(errOut)
			f.PrintDefaults()
			return nil, err
		} else if err != nil {
			return nil, err
		}
		switch name := f.Arg(0); {
		case f.NArg() == 0 && c.html != "" && (c.one || len(c.generations) == 1 || c.json):
			return nil, errors.New("--html writes all cases by all generations: " +
				"no case, --generation or --json beside it")
		case f.NArg() == 0:
			return c, nil
		case c.one:
			return nil, fmt.Errorf("unexpected argument %.60q after the name of the case", name)
		default:
			one, nearest, ok := study.FindCase(name)
			if !ok {
				return nil, fmt.Errorf("there is no case %.60q; most like it are %s; without a name all are played",
					name, strings.Join(nearest, ", "))
			}
			c.cases, c.one = []study.Case{one}, true
		}
		args = f.Args()[1:]
	}
}

// play plays what was asked for and prints it, or writes the page. A file that cannot be written is
// noticed before anything is played.
func (c *call) play(ctx context.Context, out io.Writer) error {
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
		return err
	}
	var b bytes.Buffer
	switch columns := columns(out); {
	case page != nil:
		return c.write(page, out, study.Page(c.cases, c.generations, plays))
	case c.json:
		err = c.report(&b, plays)
	case c.wide && c.one:
		timelines(&b, c.cases[0], plays, 0)
	case c.wide:
		table(&b, c.cases, c.generations, plays, 0)
	case c.one:
		timelines(&b, c.cases[0], plays, columns)
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
