package waitqueue

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// DeadlocksIn are those who have to give up in one picture of all locks, with those who stand
// outside of a line, and what each is told.
func DeadlocksIn(
	rows []catalog.Snapshot, outside map[string][]catalog.Participant,
) map[bson.ObjectID][]string {
	l := newLines(nil)
	for _, row := range rows {
		var apart []outsider
		for _, p := range outside[row.Lock.Name] {
			apart = append(apart, outsider{Participant: p})
		}
		l.add(row, apart)
	}
	l.link()
	told := map[bson.ObjectID][]string{}
	for _, n := range l.solve() {
		told[n.party.TS] = n.chain()
	}
	return told
}

// Search reads what all who wait in a queue wait for, and returns how many have to give up.
func Search(q *Queue) int {
	r, all := q.reading()
	if err := r.collect(context.Background(), all, nil); err != nil {
		panic(err)
	}
	return len(r.graph(all, nil).solve())
}
