package claim

import (
	"time"

	"mongodlm/internal/clock"
)

// upTo is a number from 0 to most, by the chance of the clock.
func upTo[T ~int | ~int64](c clock.Clock, most T) T { return T(clock.Chance(c) * float64(most+1)) }

// jittered is a pause give or take a fifth.
func jittered(c clock.Clock, d time.Duration) time.Duration { return d - d/5 + upTo(c, 2*d/5) }
