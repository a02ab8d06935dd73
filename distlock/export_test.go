package distlock

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/leading"
)

// These functions and errors are used only by elections.
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

// Grace is the additional time for a command on a store that does not notice the end of its
// context.
const Grace = grace

// KindsOfCommands is the number of kinds of commands that [Stats] counts.
var KindsOfCommands = len(newSentCommands()) - len(kinds)

// InTime exposes inTime to tests.
var InTime = inTime
