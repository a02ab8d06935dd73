package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/census"
	"mongodlm/singleton"
)

// loops implements the command loops. It only reads, except with --forget-future.
type loops struct {
	lister
	name   string
	forget bool
}

func (v *loops) flags(f *pflag.FlagSet) {
	v.lister.flags(f)
	f.BoolVar(&v.forget, "forget-future", false, "repair the schedule NAME if its latest slot is "+
		"ahead of the server's clock\nbecause that clock was ahead; first make sure that the "+
		"clock is right")
}

func (v *loops) accept(c call) error {
	if v.name = c.Arg(0); c.NArg() > 1 || c.NArg() == 1 && v.name == "" {
		return fmt.Errorf("give one name of a loop or schedule, not %q", c.Args())
	}
	if v.forget && v.name == "" {
		return errors.New("--forget-future repairs one schedule: its NAME is missing")
	}
	return v.connection.accept(c)
}

func (v *loops) run(ctx context.Context, s stdio) error {
	switch {
	case v.forget:
		return show(ctx, s, &v.lister, v.forgetFuture)
	case v.name == "":
		return show(ctx, s, &v.lister, v.collect)
	}
	return show(ctx, s, &v.lister, v.rounds)
}

type forgetResult struct {
	Database string `json:"database"`
	Name     string `json:"name"`
	Repaired bool   `json:"repaired"`
}

func (v *loops) forgetFuture(ctx context.Context, st *store) (forgetResult, error) {
	done := forgetResult{Database: st.database, Name: v.name}
	records, err := singleton.NewStore(st.client.Database(st.database))
	if err == nil {
		done.Repaired, err = singleton.ForgetFuture(ctx, records, v.name)
	}
	return done, err
}

func (d forgetResult) print(w io.Writer, _ layout) {
	if d.Repaired {
		fmt.Fprintf(w, "the slots of %s count from now; its holder reads this within a minute\n",
			named(d.Name))
		return
	}
	fmt.Fprintf(w, "the latest slot of %s is not ahead of the server's clock; nothing was changed\n",
		named(d.Name))
}

type loopList struct {
	Database string    `json:"database"`
	Loops    []loopRow `json:"loops"`

	empty string // printed instead of an empty table
}

// A loopRow is one loop or schedule. Its strings are unescaped, as stored. Its times are by the
// server's clock. A missing time is null.
type loopRow struct {
	Name      string     `json:"name"`
	Kind      string     `json:"kind"`  // loop or slots
	State     string     `json:"state"` // the state of the latest round
	Stopped   string     `json:"stopped"`
	Process   string     `json:"process"`
	Begun     *time.Time `json:"begun"`
	Next      *time.Time `json:"next"`
	Slot      *time.Time `json:"slot"`
	Rounds    int64      `json:"rounds"`
	Failures  int64      `json:"failures"`
	Missed    int64      `json:"missed"`
	LastError string     `json:"lastError"`
	Malformed string     `json:"malformed"` // the problem with the loop's documents
}

func (v *loops) collect(ctx context.Context, st *store) (loopList, error) {
	found := loopList{Database: st.database, Loops: []loopRow{}}
	all, err := census.Loops(ctx, st.client.Database(st.database))
	if err != nil {
		return found, err
	}
	if len(all) == 0 {
		found.empty = st.emptyText(ctx,
			fmt.Sprintf("no loop or schedule ever ran in database %q", st.database))
	}
	for _, l := range all {
		found.Loops = append(found.Loops, loopRow{
			Name: l.Name, Kind: string(l.Kind), State: string(l.State), Stopped: l.Stopped,
			Process: l.Process, Begun: jsonTime(l.Begun), Next: jsonTime(l.Next), Slot: jsonTime(l.Slot),
			Rounds: l.Rounds, Failures: l.Failures, Missed: l.Missed, LastError: l.LastError,
			Malformed: l.Malformed,
		})
	}
	return found, nil
}

func (q loopList) print(w io.Writer, how layout) {
	t := table{empty: q.empty, columns: []column{
		{title: "NAME", minWidth: 8}, {title: "KIND", spare: true}, {title: "LAST"},
		{title: "BEGUN", spare: true}, {title: "NEXT", spare: true},
		{title: "PAUSE", blank: "-"}, {title: "FAILED", blank: "0"}, {title: "MISSED", blank: "0"},
		{title: "PROCESS", minWidth: 8, process: true}, {title: "ERROR", wide: true},
		{title: "ROUNDS", wide: true},
	}}
	for _, r := range q.Loops {
		t.rows = append(t.rows, []string{
			label(r.Name), shown(r.Kind, 20), shown(r.State, 20), stamp(r.Begun), stamp(r.Next),
			shown(r.Stopped, 40), fmt.Sprint(r.Failures), fmt.Sprint(r.Missed),
			how.process(r.Process), how.text(r.LastError, longText),
			fmt.Sprint(r.Rounds),
		})
	}
	t.print(w, how)
	for _, r := range q.Loops {
		if r.LastError != "" && how > 0 {
			wrap(w, how, label(r.Name)+": "+shown(r.LastError, longText), "  ")
		}
		if r.Malformed != "" {
			wrap(w, how, label(cmp.Or(r.Name, "-"))+": "+catalog.Printable(r.Malformed, 400), "  ")
		}
	}
}

// A roundList contains the latest rounds of a loop or schedule, the newest first.
type roundList struct {
	Database string     `json:"database"`
	Name     string     `json:"name"`
	Kind     string     `json:"kind"`
	Runs     []roundRow `json:"runs"`
}

// A roundRow is one round. Its strings are unescaped, as stored. Its times are by the server's
// clock. A missing time is null. The duration of a round that has not ended is null.
type roundRow struct {
	State   string     `json:"state"`
	Begun   *time.Time `json:"begun"`
	Ended   *time.Time `json:"ended"`
	TookMS  *float64   `json:"tookMS"`
	Slot    *time.Time `json:"slot"`
	Attempt int64      `json:"attempt"`
	Fence   int64      `json:"fence"`
	Process string     `json:"process"`
	Error   string     `json:"error"`
}

func (v *loops) rounds(ctx context.Context, st *store) (roundList, error) {
	found := roundList{Database: st.database, Name: v.name, Runs: []roundRow{}}
	all, err := census.Loops(ctx, st.client.Database(st.database))
	if err != nil {
		return found, err
	}
	i := slices.IndexFunc(all, func(l census.Loop) bool { return l.Name == v.name })
	if i < 0 {
		return found, fmt.Errorf("no loop or schedule %s ever ran in database %q", named(v.name),
			st.database)
	}
	if all[i].Err != nil {
		return found, errors.Join(all[i].Err)
	}
	found.Kind = string(all[i].Kind)
	for _, r := range slices.Backward(all[i].Runs) {
		row := roundRow{string(r.State), jsonTime(r.Begun), jsonTime(r.Ended), nil, jsonTime(r.Slot), r.Attempt,
			r.Fence, r.Process, r.Error}
		if row.Ended != nil {
			row.TookMS = new(float64(r.Took) / float64(time.Millisecond))
		}
		found.Runs = append(found.Runs, row)
	}
	return found, nil
}

func (d roundList) print(w io.Writer, how layout) {
	t := table{empty: fmt.Sprintf("no round of %s is recorded", named(d.Name)), columns: []column{
		{title: "BEGUN"}, {title: "TOOK"}, {title: "STATE"}, {title: "SLOT", blank: "-"},
		{title: "ATTEMPT", blank: "0"},
		{title: "PROCESS", minWidth: 8, process: true}, {title: "ERROR", blank: "-", minWidth: 6},
		{title: "FENCE", wide: true},
	}}
	for _, r := range d.Runs {
		took := "-"
		if r.TookMS != nil {
			took = time.Duration(*r.TookMS * float64(time.Millisecond)).Round(time.Millisecond).String()
		}
		t.rows = append(t.rows,
			[]string{stamp(r.Begun), took, shown(r.State, 20), stamp(r.Slot), fmt.Sprint(r.Attempt),
				how.process(r.Process), how.text(cmp.Or(r.Error, "-"), 80), fmt.Sprint(r.Fence)})
	}
	t.print(w, how)
}
