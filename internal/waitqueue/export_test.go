package waitqueue

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// DeadlockIn is what a waiter is told of one picture of all locks, with those who stand outside of a line;
// nil when it is told nothing.
func DeadlockIn(rows []catalog.Snapshot, outside map[string][]catalog.Participant, ts bson.ObjectID) []string {
	l := newLines(nil)
	for _, row := range rows {
		l.add(row, outside[row.Lock.Name]...)
	}
	l.link()
	return l.circle(ts)
}
