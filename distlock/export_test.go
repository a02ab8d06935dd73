package distlock

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/leading"
)

// ErrNotHeld and ErrNotQueued, and the methods RequestYield and PutFirst, are part of the internal
// API for elections.
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

// Grace is the time that a call may take after the end of its context, if the store ignores that
// context.
const Grace = grace

// KindsOfCommands is the number of keys in the field Commands of [Stats].
var KindsOfCommands = len(newSentCommands()) - len(kinds)

// InTime runs a command and returns earlier if the context of the caller ends.
var InTime = inTime
