package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"mongodlm/claim"
	"mongodlm/distlock"
)

// maxQueues bounds the number of queues to count.
const maxQueues = 100

// A queueList lists the queues whose workers keep their locks in a database.
type queueList struct {
	Database string    `json:"database"`
	Queues   []backlog `json:"queues"`
	More     bool      `json:"more"` // more queues exist than were counted

	void string // printed instead of an empty table
}

// queues counts the rows of all queues that have a lock document.
func (v *claims) queues(ctx context.Context, st *store) (queueList, error) {
	l := queueList{Database: v.database, Queues: []backlog{}}
	var names []string
	due := map[string]string{} // due fields by queue name
	for lock, err := range st.Locks(ctx) {
		if err != nil && !errors.Is(err, distlock.ErrMalformed) {
			return l, err
		}
		of, is := strings.CutPrefix(lock.Name, "claim:")
		name, _, whole := strings.Cut(of, ":")
		if is && whole && strings.Contains(name, ".") && !slices.Contains(names, name) {
			names = append(names, name)
		}
		if is && whole {
			due[name] = cmp.Or(due[name], claim.ConfigOf(lock.Why).Due)
		}
	}
	l.More = len(names) > maxQueues
	for _, name := range names[:min(len(names), maxQueues)] {
		database, collection, _ := strings.Cut(name, ".")
		var n claim.Counts
		admin, err := claim.NewAdmin(st.client.Database(database).Collection(collection),
			claim.Config{Due: due[name]})
		if err == nil {
			n, err = admin.Count(ctx)
		}
		if err != nil {
			return l, fmt.Errorf("count the rows of %s: %w", named(name), err)
		}
		l.Queues = append(l.Queues, backlog{Database: database, Collection: collection, Ready: n.Ready,
			Later: n.Later, Due: due[name], Claimed: n.Claimed, Retrying: n.Retrying, Dead: n.Dead,
			Done: n.Done})
	}
	slices.SortStableFunc(l.Queues, func(a, b backlog) int {
		return cmp.Or(cmp.Compare(b.Dead, a.Dead), cmp.Compare(b.Retrying, a.Retrying))
	})
	if len(l.Queues) == 0 {
		l.void = st.nothing(ctx, fmt.Sprintf("no worker of a queue ever had a lock in database %q; "+
			"name a COLLECTION to count its rows", l.Database))
	}
	return l, nil
}

func (l queueList) print(w io.Writer, how layout) {
	if l.void != "" {
		fmt.Fprintln(w, l.void)
		return
	}
	t := table{columns: []column{{title: "QUEUE", least: 8}, {title: "READY"}, {title: "LATER",
		idle: "0"}, {title: "CLAIMED"}, {title: "RETRYING"}, {title: "DEAD"}, {title: "DONE"}}}
	for _, q := range l.Queues {
		t.rows = append(t.rows,
			[]string{how.label(q.Database + "." + q.Collection), fmt.Sprint(q.Ready), fmt.Sprint(q.Later),
				fmt.Sprint(q.Claimed), fmt.Sprint(q.Retrying), fmt.Sprint(q.Dead), fmt.Sprint(q.Done)})
	}
	t.print(w, how)
	if l.More {
		fmt.Fprintf(w, "and more; the first %d are counted\n", maxQueues)
	}
}
