package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"mongodlm/study/internal/study"
)

// sweepAll sweeps a knob through all generations and draws where they break.
func (c *call) sweepAll(ctx context.Context, out io.Writer) error {
	for i, sw := range c.sweeps {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s: %s (case %s, %s)\n", sw.Name, sw.Title, sw.Case, sw.Knob)
		const name, bar = 11, 40
		fmt.Fprintf(out, "%*s%-*s%s\n", name, "", bar-len(study.Span(sw.Most)), "0", study.Span(sw.Most))
		for _, g := range c.generations {
			found, err := sw.Run(ctx, g)
			if err != nil {
				return err
			}
			n := bar
			if found.Broken {
				n = int(bar * found.From / sw.Most)
			}
			drawing := strings.Repeat("-", n) + strings.Repeat("#", bar-n)
			if found.Not != "" {
				drawing = strings.Repeat(" ", bar)
			}
			row(out, column{name - gap, "", g.Name}, column{bar, "", drawing},
				column{max(columns(out)-name-bar-2*gap, 0), "", found.Said(sw)})
		}
	}
	return nil
}

// search searches for so many plays, or for so long.
func (c *call) search(ctx context.Context, g study.Generation) (study.Finding, error) {
	if c.last == 0 {
		return study.Search{Seed: c.seed, Plays: c.plays}.Run(ctx, g)
	}
	ctx, cancel := context.WithTimeout(ctx, c.last)
	defer cancel()
	found, err := study.Search{Seed: c.seed, Plays: math.MaxInt}.Run(ctx, g)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return found, err
}

// searchAll searches for a schedule that breaks each generation.
func (c *call) searchAll(ctx context.Context, out io.Writer) error {
	for _, g := range c.generations {
		found, err := c.search(ctx, g)
		if err != nil && found.Plays == 0 {
			return err
		}
		fmt.Fprintf(out, "%s, seed %d: %d plays, %d accidents, %s simulated: ", g.Name, c.seed,
			found.Plays, found.Accidents, study.Span(found.Simulated))
		if found.Set == nil {
			fmt.Fprintln(out, "none breaks it")
			if err != nil {
				return err
			}
			continue
		}
		if o := found.Outcome; o.Two == 0 && o.TwoTrusted > 0 {
			fmt.Fprintf(out, "two for %s, one of whom stood still, ", study.Span(o.TwoTrusted))
		}
		fmt.Fprintf(out, "%s\n  drawn:   %s\n  reduced: go run ./study quiet --generation %s --set %s\n",
			strings.Join(found.Outcome.Parts(), ", "), strings.Join(found.Drawn, " "), g.Name,
			strings.Join(found.Set, " --set "))
	}
	return nil
}
