package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/claim"
	"mongodlm/cmd/internal/census"
	"mongodlm/cmd/internal/words"
)

const maxQueues = 100

type queueList struct {
	Database string    `json:"database"`
	Queues   []backlog `json:"queues"`
	More     bool      `json:"more"` // more queues exist than were counted

	empty string // printed instead of an empty table
}

// queues returns the queues that have a lock document.
func (s *store) queues(ctx context.Context) ([]*census.Queue, error) {
	locks, err := census.Read(census.Unbounded, s.Locks(ctx))
	if err != nil {
		return nil, err
	}
	return locks.Queues(), nil
}

// countQueues counts the rows of at most maxQueues queues. It omits a queue that the server or
// package claim refuses to count, for example without a privilege, and adds the error to v.refused.
func (v *claims) countQueues(ctx context.Context, st *store) (queueList, error) {
	l := queueList{Database: v.database, Queues: []backlog{}}
	known, err := st.queues(ctx)
	if err != nil {
		return l, err
	}
	l.More = len(known) > maxQueues
	for _, one := range known[:min(len(known), maxQueues)] {
		var n claim.Counts
		q := backlogOf(one.Collection(st.client), one.Config)
		admin, err := claim.NewAdmin(one.Collection(st.client), one.Config)
		if err == nil {
			n, err = admin.Count(ctx)
		}
		var server mongo.ServerError
		if err != nil {
			err = fmt.Errorf("count the rows of %s: %w", named(q.name()), err)
		}
		switch {
		case errors.As(err, &server) || errors.Is(err, claim.ErrConfig):
			v.refused = errors.Join(v.refused, err)
		case err != nil:
			return l, err
		default:
			q.set(n)
			l.Queues = append(l.Queues, q)
		}
	}
	slices.SortStableFunc(l.Queues, func(a, b backlog) int {
		return cmp.Or(cmp.Compare(b.Dead, a.Dead), cmp.Compare(b.Retrying, a.Retrying))
	})
	l.empty = "no queue can be counted"
	if len(known) == 0 {
		l.empty = st.emptyText(ctx, fmt.Sprintf("no worker of a queue ever acquired a lock in database "+
			"%q; name a COLLECTION to count its rows", l.Database))
	}
	return l, nil
}

func (l queueList) print(w io.Writer, how layout) {
	t := table{empty: l.empty, columns: []column{{title: "QUEUE", minWidth: 8}, {title: "READY"},
		{title: "LATER", blank: "0"}, {title: "CLAIMED"}, {title: "RETRYING"}, {title: "DEAD"},
		{title: "DONE"}}}
	for _, q := range l.Queues {
		name := label(q.name())
		if q.config.Field != words.DefaultField {
			name += " --field " + label(q.config.Field)
		}
		t.rows = append(t.rows,
			[]string{name, fmt.Sprint(q.Ready), fmt.Sprint(q.Later),
				fmt.Sprint(q.Claimed), fmt.Sprint(q.Retrying), fmt.Sprint(q.Dead), fmt.Sprint(q.Done)})
	}
	t.print(w, how)
	if l.More {
		fmt.Fprintf(w, "more queues exist; only the first %d are counted\n", maxQueues)
	}
}
