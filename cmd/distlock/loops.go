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

	"mongodlm/singleton"
)

// loops shows the loops and schedules, or the latest rounds of one. It only reads.
type loops struct {
	jobs
	name string
}

func (v *loops) flags(f *pflag.FlagSet) { v.lister.flags(f) }

func (v *loops) accept(c call) error {
	if args := append(c.args, c.after...); len(args) > 0 {
		if v.name = args[0]; len(args) > 1 || v.name == "" {
			return fmt.Errorf("give one name of a loop or schedule, not %q", args)
		}
	}
	return v.connection.accept(c)
}

func (v *loops) run(ctx context.Context, s stdio) error {
	if v.name == "" {
		return v.tell(ctx, s)
	}
	return show(ctx, s, &v.lister, v.rounds)
}

// A roundList is the latest rounds of a loop or schedule, the newest first.
type roundList struct {
	Database string     `json:"database"`
	Name     string     `json:"name"`
	Kind     string     `json:"kind"`
	Runs     []roundRow `json:"runs"`
}

// A roundRow is one round. Its texts are as stored, its times are by the server's clock; those that
// there are none of are null, as is how long a round took that has not ended.
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
	found := roundList{Database: v.database, Name: v.name, Runs: []roundRow{}}
	records, err := singleton.NewStore(st.client.Database(v.database))
	if err != nil {
		return found, err
	}
	all, err := singleton.List(ctx, records)
	if err != nil {
		return found, err
	}
	i := slices.IndexFunc(all, func(s singleton.Status) bool { return s.Name == v.name })
	if i < 0 {
		return found, fmt.Errorf("no loop or schedule %s ever ran in database %q", named(v.name),
			v.database)
	}
	if all[i].Err != nil {
		return found, errors.Join(all[i].Err)
	}
	found.Kind = string(all[i].Kind)
	for _, r := range slices.Backward(all[i].Runs) {
		row := roundRow{string(r.State), moment(r.Begun), moment(r.Ended), nil, moment(r.Slot), r.Attempt,
			r.Fence, r.Process, r.Error}
		if row.Ended != nil {
			row.TookMS = new(float64(r.Took) / float64(time.Millisecond))
		}
		found.Runs = append(found.Runs, row)
	}
	return found, nil
}

// print writes the rounds for a person.
func (d roundList) print(w io.Writer, how layout) {
	if len(d.Runs) == 0 {
		fmt.Fprintf(w, "no round of %s is recorded\n", named(d.Name))
		return
	}
	t := table{columns: []column{
		{title: "BEGUN"}, {title: "TOOK"}, {title: "STATE"}, {title: "SLOT", idle: "-"},
		{title: "ATTEMPT", idle: "0"},
		{title: "PROCESS", least: 8}, {title: "ERROR", idle: "-", least: 6}, {title: "FENCE", wide: true},
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
