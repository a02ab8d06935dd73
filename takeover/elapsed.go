package takeover

import (
	"math"
	"time"
)

// replied returns when the reply of a look was there, on the contender's monotonic clock; never
// before the look was sent, whatever the evidence says.
func replied(e Evidence) time.Duration { return max(e.Sent, e.Received) }

// roundTrip returns how long a look was under way, at least zero.
func roundTrip(e Evidence) time.Duration { return minus(replied(e), e.Sent) }

// byOwnClock returns how long a contender may say it has watched by its monotonic clock: from the
// first look's reply (R1) to the sending of the present look (R2). Zero for the same look twice
// and for looks that overlap.
func byOwnClock(first, now Evidence) time.Duration {
	return max(minus(now.Sent, replied(first)), 0)
}

// byServer returns the same by the server's clock; ok is false when one of the two looks does not
// know it.
func byServer(first, now Evidence) (d time.Duration, ok bool) {
	if first.Server.IsZero() || now.Server.IsZero() {
		return 0, false
	}
	return max(now.Server.Sub(first.Server), 0), true
}

// watchedFor returns the smaller of both clocks, so that neither a step of the server's clock nor
// a contender whose clock stood still can make it too much. mongos 2.0 to 6.0 took the server's
// clock alone, and with it every step.
func watchedFor(first, now Evidence) time.Duration {
	own := byOwnClock(first, now)
	if server, ok := byServer(first, now); ok {
		return min(own, server)
	}
	return own
}

// minus returns a - b, saturated.
func minus(a, b time.Duration) time.Duration {
	d := a - b
	switch {
	case a >= 0 && b < 0 && d < 0:
		return math.MaxInt64
	case a < 0 && b > 0 && d >= 0:
		return math.MinInt64
	}
	return d
}

// plus returns a + b for durations that are not negative, saturated.
func plus(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// apart returns the distance of two readings, saturated.
func apart(a, b time.Time) time.Duration {
	d := a.Sub(b)
	if d < 0 {
		return minus(0, d)
	}
	return d
}

// upTo returns n times d, or limit when that is less. All must be positive.
func upTo(limit, d time.Duration, n int) time.Duration {
	if d > limit/time.Duration(n) {
		return limit
	}
	return time.Duration(n) * d
}
