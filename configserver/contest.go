package configserver

import (
	"context"
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

type contest struct {
	scratch    *mongo.Collection
	contenders int
	rounds     int
}

// freeFence is the fence of a free lock before a race.
const freeFence = int64(1)

// A scratchLock is the document of a race. Only this package writes it, so it is decoded without
// checks.
type scratchLock struct {
	TS    bson.ObjectID `bson:"ts"`
	Fence int64         `bson:"fence"`
}

func (c *contest) run(ctx context.Context) (Report, error) {
	report := Report{Contenders: c.contenders}
	for round := range c.rounds {
		// In even rounds the lock document is missing, in odd rounds the lock is free.
		if err := c.round(ctx, round%2 > 0, c.acquire, &report.Acquire); err != nil {
			return Report{}, fmt.Errorf("acquire, round %d: %w", round+1, err)
		}
		if err := c.round(ctx, true, c.compareAndSet, &report.CompareAndSet); err != nil {
			return Report{}, fmt.Errorf("compare-and-set, round %d: %w", round+1, err)
		}
	}
	report.Atomic = report.Acquire.One == c.rounds && report.CompareAndSet.One == c.rounds
	return report, nil
}

// A try sends one command for a contender, which is identified by its session. It reports whether
// the contender has won according to the reply of the server. After an error, the contender has
// neither won nor lost.
type try func(ctx context.Context, id string, session bson.ObjectID) (won bool, err error)

// race starts all contenders at the same time and returns the sessions of the winners.
func (c *contest) race(ctx context.Context, one try, id string) ([]bson.ObjectID, error) {
	var (
		mu      sync.Mutex // guards winners, failed
		winners []bson.ObjectID
		failed  error
		ended   sync.WaitGroup
		start   = make(chan struct{})
	)
	for range c.contenders {
		session := bson.NewObjectID()
		ended.Go(func() {
			<-start
			// The end of ctx does not stop the command. A command that runs after the drop of the scratch
			// collection would create the collection again.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
			defer cancel()
			won, err := one(ctx, id, session)
			mu.Lock()
			defer mu.Unlock()
			if won {
				winners = append(winners, session)
			}
			if err != nil && failed == nil {
				failed = err
			}
		})
	}
	close(start)
	ended.Wait()
	return winners, failed
}

// round runs one race for a document and counts the winners. If exists is set, round first inserts
// the document of a free lock. Otherwise there is no document before the race. round deletes the
// document afterwards, because each document slows FerretDB down.
func (c *contest) round(ctx context.Context, exists bool, one try, t *Tally) error {
	id := bson.NewObjectID().Hex()
	byID, fence := bson.D{{Key: "_id", Value: id}}, int64(0)
	if exists {
		fence = freeFence
		free := append(byID, bson.E{Key: "state", Value: 0}, bson.E{Key: "fence", Value: fence})
		if _, err := c.scratch.InsertOne(ctx, free); err != nil {
			return err
		}
	}
	winners, err := c.race(ctx, one, id)
	if err != nil {
		return err
	}
	var last scratchLock
	if err = c.scratch.FindOne(ctx, byID).Decode(&last); err != nil {
		return err
	}
	t.count(winners, last, fence+1)
	_, err = c.scratch.DeleteOne(ctx, byID)
	return err
}

// acquire sends the command by which distlock acquires a lock.
func (c *contest) acquire(ctx context.Context, id string, s bson.ObjectID) (bool, error) {
	filter := bson.D{{Key: "_id", Value: id}, {Key: "state", Value: 0}}
	after := options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)
	var got scratchLock
	err := c.scratch.FindOneAndUpdate(ctx, filter, taken(s), after).Decode(&got)
	if mongo.IsDuplicateKeyError(err) {
		return false, nil // the lock exists and is held
	}
	return err == nil && got.TS == s, err
}

// compareAndSet sends an update of the document that all contenders have read.
func (c *contest) compareAndSet(ctx context.Context, id string, s bson.ObjectID) (bool, error) {
	filter := bson.D{{Key: "_id", Value: id}, {Key: "fence", Value: freeFence}}
	res, err := c.scratch.UpdateOne(ctx, filter, taken(s))
	return err == nil && res.MatchedCount == 1, err
}

// taken returns the update by which a contender takes the lock.
func taken(s bson.ObjectID) bson.D {
	return bson.D{
		{Key: "$set", Value: bson.D{{Key: "state", Value: 1}, {Key: "ts", Value: s}}},
		{Key: "$inc", Value: bson.D{{Key: "fence", Value: int64(1)}}},
	}
}

// count adds a round to the tally. The argument last is the document after the round. If the round
// has exactly one winner, last must have the given fence.
func (t *Tally) count(winners []bson.ObjectID, last scratchLock, fence int64) {
	t.Rounds++
	switch {
	case len(winners) > 1:
		t.Several++
	case len(winners) == 1 && last.TS == winners[0] && last.Fence == fence:
		t.One++
	default:
		t.None++
	}
}
