// Package mutant names the mistakes that a distributed lock is most easily built with, so that a
// test can switch one on in the real code and see that the tests notice.
//
// A mistake is switched on by the clock of a process and by nothing else: [Of] asks whether a
// [clock.Clock] carries mistakes. The clocks of production do not, so every branch that asks is
// off there. The numbers are those of docs/mutants.md.
package mutant

import "mongodlm/internal/clock"

// A Mistake is one thing done wrong.
type Mistake uint8

// The mistakes, by their numbers in docs/mutants.md. Those marked "store" are made by the store
// that an exploration puts under the lock, the others by the packages distlock and pinger.
const (
	OvertakeByName           Mistake = iota + 1 // 1, store: an overtake names only the lock
	ReleaseByName                               // 2, store: a release names only the lock
	DeadlineFromReply                           // 3: the deadline counts from the ping's reply
	StopwatchBeforeFirstLook                    // 4: a watch counts from before its first look
	StopwatchAfterLastLook                      // 5: a watch is read after the last look's reply
	LateReplyRevives                            // 6: an answer after the deadline restores trust
	HoldPastTakeover                            // 7: a guard is trusted for takeover + ping
	OwnTakeoverOnly                             // 8: the holder's recorded takeover time is ignored
	AgeByOwnClock                               // 9: the ping's age is told by the contender's clock
	NoReap                                      // 10: ghosts are never looked for
	TableBeforeRead                             // 11: the reaper asks its own table first
	PendingAfterSend                            // 12: an attempt is noted when its reply is there
	UpsertingPing                               // 13, store: a ping makes a condemned process live
	ForkIgnored                                 // 14: an unexpected seq is accepted
	UnknownIsNotHeld                            // 15: an unknown outcome is taken for a failure
	UnknownIsHeld                               // 16: an unknown outcome is taken for a success
	LenientDecode                               // 17, store: a lock without a state is free
	WriteConcernOne                             // 18, store: a write is acknowledged too early
	ElectionIgnored                             // 19: an election does not restart a watch
	SessionChangeIgnored                        // 20: another ts does not restart a watch
	TimerOnlyExpiry                             // 21: only a timer ends a guard
	FenceNotSeeded                              // 22: a new document starts with fence 1
	StaleLastLook                               // 23: no condemning, no question who is primary
	RevalidateByReading                         // 24: a lost guard is restored by a read
	ReleaseForgetsLine                          // 25, store: a release frees the lock for nobody
	NewcomerFirst                               // 26, store: a newcomer stands before the others
	BuryByProcess                               // 27, store: a burial names only the process
	QuitterStays                                // 28, store: who gives up stays in the line
	GrantAfterTerm                              // 29: a grant is used although the term ended
	NoQuestionAfterOpening                      // 30: no question after a stream has opened
	BuriedByAge                                 // 31: a waiter is buried for having waited long
	LatePingCounts                              // 32, store: the server counts the pings, late ones too
	ForeignIsOurs                               // 33: fields that a foreign manager left are its own
	end
)

var names = [end]string{
	OvertakeByName:           "overtake by _id alone",
	ReleaseByName:            "release by _id alone",
	DeadlineFromReply:        "deadline from the reply",
	StopwatchBeforeFirstLook: "stopwatch from before the first look",
	StopwatchAfterLastLook:   "stopwatch read after the last look",
	LateReplyRevives:         "guard revived by a late reply",
	HoldPastTakeover:         "trusted for takeover + ping",
	OwnTakeoverOnly:          "own takeover time only",
	AgeByOwnClock:            "age of the ping by the contender's clock",
	NoReap:                   "no reap",
	TableBeforeRead:          "reaper asks its table before the read",
	PendingAfterSend:         "attempt noted after sending",
	UpsertingPing:            "upserting ping",
	ForkIgnored:              "seq fork ignored",
	UnknownIsNotHeld:         "unknown taken for not held",
	UnknownIsHeld:            "unknown taken for held",
	LenientDecode:            "missing state taken for free",
	WriteConcernOne:          "write concern 1",
	ElectionIgnored:          "watch goes on after an election",
	SessionChangeIgnored:     "watch goes on over another ts",
	TimerOnlyExpiry:          "expiry by timer only",
	FenceNotSeeded:           "fence starts anew with the document",
	StaleLastLook:            "last look from a stale primary, not condemned",
	RevalidateByReading:      "revalidation by reading",
	ReleaseForgetsLine:       "release forgets the line",
	NewcomerFirst:            "newcomer overtakes the line",
	BuryByProcess:            "burial by process alone",
	QuitterStays:             "a waiter that gave up stays in line",
	GrantAfterTerm:           "grant used although the term ended",
	NoQuestionAfterOpening:   "no question after the stream opened",
	BuriedByAge:              "waiter buried by age alone",
	LatePingCounts:           "a late ping counts as one more",
	ForeignIsOurs:            "foreign holder taken for one of ours",
}

// String returns the mistake in words.
func (m Mistake) String() string {
	if m == 0 || m >= end {
		return "no such mistake"
	}
	return names[m]
}

// All returns every mistake, by number.
func All() []Mistake {
	all := make([]Mistake, 0, end-1)
	for m := Mistake(1); m < end; m++ {
		all = append(all, m)
	}
	return all
}

// A Set is the mistakes that are switched on. The zero value is none.
type Set uint64

// Only returns the set of the mistakes given.
func Only(mistakes ...Mistake) Set {
	var s Set
	for _, m := range mistakes {
		s |= 1 << m
	}
	return s
}

// Has reports whether m is switched on.
func (s Set) Has(m Mistake) bool { return s&(1<<m) != 0 }

// Of returns the mistakes that a clock carries; none for a clock that knows nothing of them.
func Of(c clock.Clock) Set {
	if carrier, ok := c.(interface{ Mistakes() Set }); ok {
		return carrier.Mistakes()
	}
	return 0
}
