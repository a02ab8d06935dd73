package distlock

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/leading"
)

// ErrNotHeld, ErrNotQueued, RequestYield and PutFirst are used by elections. They are not in the
// public API.
var (
	ErrNotHeld   = leading.ErrNotHeld
	ErrNotQueued = leading.ErrNotQueued
)

func (l *DistributedLock) RequestYield(ctx context.Context, why string) error {
	return l.m.Internal(leading.Key{}).RequestYield(ctx, l.name, why)
}

func (g *TryGuard) PutFirst(ctx context.Context, waiter bson.ObjectID) error {
	return internals{}.PutFirst(ctx, g, waiter)
}

// Grace is the additional time for a command whose store ignores the end of its context.
const Grace = grace

// KindsOfCommands is the number of kinds in the map Commands of [Stats].
var KindsOfCommands = len(newSentCommands()) - len(kinds)

// InTime exposes inTime to tests.
var InTime = inTime
