package census

import (
	"cmp"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/claim"
	"mongodlm/cmd/internal/words"
)

// A Queue is a queue of package claim. Queues that use the same field of the same collection share
// their rows, so they are one Queue.
type Queue struct {
	Namespace string       // DATABASE.COLLECTION
	Names     []string     // with the field, if it is not the default
	Config    claim.Config // the fields Field, Due and Key
	Workers   int
}

// Collection returns the collection of the rows.
func (q *Queue) Collection(client *mongo.Client) *mongo.Collection {
	database, collection, _ := strings.Cut(q.Namespace, ".")
	return client.Database(database).Collection(collection)
}

// Queues returns the queues whose workers have acquired a lock, with the fields that the workers
// recorded. The lock of a worker has a name such as claim:DATABASE.COLLECTION:QUEUE:SLOT.
func (l *Listing) Queues() (all []*Queue) {
	known := map[[2]string]*Queue{}
	for _, lock := range l.Locks {
		namespace, name, is := words.Queue(lock.Name)
		if !is {
			continue
		}
		key := [2]string{namespace, words.Field(name)}
		q := known[key]
		if q == nil {
			q = &Queue{Namespace: namespace, Config: claim.Config{Field: key[1]}}
			known[key] = q
			all = append(all, q)
		}
		if !slices.Contains(q.Names, name) {
			q.Names = append(q.Names, name)
		}
		as := claim.ConfigOf(lock.Holders[0].Why)
		q.Config.Due, q.Config.Key = cmp.Or(q.Config.Due, as.Due), cmp.Or(q.Config.Key, as.Key)
		if lock.Held() && !strings.HasSuffix(lock.Name, ":rescue") {
			q.Workers++
		}
	}
	return all
}
