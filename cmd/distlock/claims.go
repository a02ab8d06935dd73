package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"mongodlm/claim"
)

// claims counts the rows of a collection on which workers of package claim work. It only reads.
type claims struct {
	connection
	collection, field string
	json              bool
}

func (v *claims) flags(f *pflag.FlagSet) {
	v.connection.flags(f)
	f.StringVar(&v.field, "field", "claim", "the `name` of the field that says whose a row is")
	f.BoolVar(&v.json, "json", false, "print the counts as JSON")
}

func (v *claims) accept(c call) error {
	args := append(c.args, c.after...)
	switch {
	case len(args) != 1 || args[0] == "":
		return fmt.Errorf("give one collection, not %q", args)
	case strings.ContainsAny(args[0], "$\x00"):
		return fmt.Errorf("%s is no name of a collection", named(args[0]))
	case v.field == "" || strings.ContainsAny(v.field, ".$\x00"):
		return errors.New("--field must be the name of a field, without a dot")
	}
	v.collection = args[0]
	return v.connection.accept(c)
}

func (v *claims) run(ctx context.Context, s stdio) error {
	return show(ctx, s, &v.connection, v.json, false, v.collect)
}

// A backlog is the rows of a collection by state.
type backlog struct {
	Database   string `json:"database"`
	Collection string `json:"collection"`
	Ready      int64  `json:"ready"`
	Claimed    int64  `json:"claimed"`
	Retrying   int64  `json:"retrying"`
	Dead       int64  `json:"dead"`
	Done       int64  `json:"done"`
}

func (v *claims) collect(ctx context.Context, st *store) (backlog, error) {
	rows := st.client.Database(v.database).Collection(v.collection)
	n, err := claim.Count(ctx, rows, claim.Config{Field: v.field})
	return backlog{v.database, v.collection, n.Ready, n.Claimed, n.Retrying, n.Dead, n.Done}, err
}

// print writes the counts for a person.
func (q backlog) print(w io.Writer, _ layout) {
	fmt.Fprintf(w, "%d ready, %d claimed, %d retrying, %d dead, %d done in %s\n", q.Ready, q.Claimed,
		q.Retrying, q.Dead, q.Done, named(q.Database+"."+q.Collection))
}
