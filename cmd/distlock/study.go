package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"mongodlm/internal/study"
)

// studies plays the generations of mongos' lock, and this one's, in cases that go wrong. It needs no server.
type studies struct {
	cases       []study.Case
	one         bool // a case was named
	generations []study.Generation
	generation  string
	html        string // the file of the page
	rule        string // of ours that is taken out
	json, wide  bool
}

func (v *studies) flags(f *flag.FlagSet) {
	f.StringVar(&v.generation, "generation", "", "play only this `NAME`: 1.8, 2.0, 3.2 or ours")
	f.StringVar(&v.html, "html", "", "write a page about all cases to this `FILE`, and nothing else")
	f.StringVar(&v.rule, "break", "", "play the CASE by ours without this `RULE` of docs/mutants.md, named or\n"+
		"numbered; needs the Go tool and the sources of the module")
	f.BoolVar(&v.json, "json", false, "print what came of it as JSON; of one case all that happened")
	f.BoolVar(&v.wide, "wide", false, wideText)
}

func (v *studies) accept(c call) error {
	v.cases, v.generations = study.Cases(), study.Generations()
	if args := append(c.args, c.after...); len(args) > 1 {
		return fmt.Errorf("unexpected argument %q after the name of the case", shown(args[1], 60))
	} else if len(args) == 1 {
		one, nearest, ok := study.FindCase(args[0])
		if !ok {
			return fmt.Errorf("there is no case %q; most like it are %s; without a name all are played",
				shown(args[0], 60), strings.Join(nearest, ", "))
		}
		v.cases, v.one = []study.Case{one}, true
	}
	if c.given["html"] && (v.one || c.given["generation"] || v.json) {
		return errors.New("--html writes all cases by all generations: no case, --generation or --json beside it")
	} else if c.given["html"] && v.html == "" {
		return errors.New("--html needs the name of a file")
	}
	if c.given["break"] && (!v.one || v.rule == "" || c.given["generation"] && v.generation != study.Ours) {
		return errors.New("--break needs a rule and a case, and is about ours alone")
	}
	if c.given["generation"] {
		g, names, ok := study.FindGeneration(v.generation)
		if !ok {
			return fmt.Errorf("there is no generation %q; there are %s", shown(v.generation, 60),
				strings.Join(names, ", "))
		}
		v.generations = []study.Generation{g}
	}
	return nil
}

func (v *studies) secrets() string { return "" }

func (v *studies) run(ctx context.Context, s stdio) error {
	if v.rule != "" {
		return v.broken(ctx, s)
	}
	if v.html != "" {
		return v.page(ctx, s)
	}
	plays, err := study.Run(ctx, v.cases, v.generations)
	if err != nil {
		return err
	}
	if v.json {
		var all []study.Report
		for i, c := range v.cases {
			all = append(all, study.ReportOf(c, v.of(plays, i), v.one))
		}
		if v.one {
			return writeJSON(s.out, all[0])
		}
		return writeJSON(s.out, all)
	}
	return printed(s.out, func(w io.Writer) {
		if how := layoutOf(s.out, v.wide); v.one {
			v.timelines(w, plays, how)
		} else {
			v.table(w, plays, how)
		}
	})
}

// page writes the page. A file that cannot be written is noticed before anything is played.
func (v *studies) page(ctx context.Context, s stdio) error {
	file, err := os.OpenFile(v.html, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("the page is not written: %w", err)
	}
	plays, err := study.Run(ctx, v.cases, v.generations)
	if err == nil {
		page := study.Page(v.cases, v.generations, plays)
		_, err = file.WriteString(page)
		if info, known := file.Stat(); known == nil && info.Mode().IsRegular() && err == nil {
			err = file.Truncate(int64(len(page))) // a longer one was there
		}
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("the page is not written: %w", err)
	}
	fmt.Fprintf(s.out, "%s: %d cases by %d generations\n", shown(v.html, 200), len(v.cases), len(v.generations))
	return nil
}

// of returns the plays of the case with that index.
func (v *studies) of(plays []study.Play, i int) []study.Play {
	n := len(v.generations)
	return plays[i*n : (i+1)*n]
}

// leastTable is the width below which a table of all generations says nothing any more.
const leastTable = 100

// table prints the cases by generations: a line for each case, or in a narrow terminal one for each play.
func (v *studies) table(w io.Writer, plays []study.Play, how layout) {
	if how.width > 0 && how.width < leastTable && len(v.generations) > 1 {
		v.list(w, plays, how)
		return
	}
	t := table{columns: []column{{title: "CASE"}, {title: "HOLE"}}}
	for _, g := range v.generations {
		t.columns = append(t.columns, column{title: strings.ToUpper(g.Name), least: 8})
	}
	for i, c := range v.cases {
		row := []string{c.Name, c.Hole}
		for _, p := range v.of(plays, i) {
			row = append(row, strings.Join(p.Outcome.Parts(), ", "))
		}
		t.rows = append(t.rows, row)
	}
	t.print(w, how)
}

func (v *studies) list(w io.Writer, plays []study.Play, how layout) {
	widest := 0
	for _, g := range v.generations {
		widest = max(widest, cells(g.Name))
	}
	for i, c := range v.cases {
		fmt.Fprintln(w, cutTo(c.Name+" ("+c.Hole+")", how.width))
		for _, p := range v.of(plays, i) {
			lines := wrapped(strings.Join(p.Outcome.Parts(), ", "), how.width-widest-4)
			for j, line := range lines {
				name := ""
				if j == 0 {
					name = p.Generation
				}
				fmt.Fprintf(w, "  %-*s  %s\n", widest, name, line)
			}
		}
	}
}

// wrapped breaks a text between its words into lines of at most so many columns; 0: one line.
func wrapped(text string, limit int) []string {
	if limit <= 0 {
		return []string{text}
	}
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = cutTo(word, limit)
		case cells(line)+1+cells(word) <= limit:
			line += " " + word
		default:
			lines = append(lines, line)
			line = cutTo(word, limit)
		}
	}
	return slices.Concat(lines, []string{line})
}
