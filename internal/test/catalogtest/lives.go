package catalogtest

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// plainLives test acquisitions, breaks and renewals.
var plainLives = []life{
	{"Acquired_OthersAreRefused",
		"a1 a1:held a2:held x2?:held c2:no n2/7:no e2:no -2:no", "x1 |", nil},
	{"Acquired_Again_FenceRises", "a1 -1 a2 -2 x3? -3 a1 c1 n1/50 n1/20", "x1 |", nil},
	{"Released_NothingOfItMatches",
		"a1 -1 -1:no c1:no n1/7:no e1:no E1:no r1/1:no b1/1:no b0/1:no y:no g:no f1/1:no", "|", nil},
	{"Held_NothingOfAnotherMatches",
		"a1 -2:no c2:no n2/7:no e2:no r2/1:no E1:no e0:no -0:no b2/1:no b1/2:no b0/0:no f2/1:no",
		"x1 |", nil},
	{"Evicted_NothingOfItMatches",
		"a1 e1 a2 -1:no c1:no n1/7:no e1:no r1/1:no b1/1:no b1/2:no", "x2 |", nil},
	{"NextHolder_LateUndoMatchesNothing", "a1 -1 a2 -1:no e1:no c1:no", "x2 |", nil},
	{"Broken_OldSessionIsFencedOff", "a1 b0/1 -1:no c1:no e1:no b0/2:no a2 -2", "|", nil},
	{"Broken_BySession", "a1 b2/1:no b1/1 x2 b2/3", "|", nil},
	{"Broken_NotWithWaitersOrSharers", "x1 x2 b1/1:no -1 -2 s3 b3/3:no", "s3 |", nil},
	{"Renewed_OlderOrATwins_MatchesNothing", "a1 r1/2 r1/1:no r1/2t:no r1/2 r1/3", "x1 |", nil},
	{"Renewed_EvictedOnlyAsWatched",
		"a1 e1/1:no r1/1 r1/2 e1/1:no e1/2 a2 r2/1 x3 e2/2:no e2/1", "x3 |", nil},
	{"Renewed_EachSharerHasItsOwnLease", "s1 s2 s3 r1/5 r2/1 r1/6 e1/5:no e1/6 r3/1 -2", "s3 |", nil},
	{"Renewed_NotByAWaiter_NorByTheNext", "a1 x2 r2/1:no r1/1 -1 r2/1 r1/2:no", "x2 |", nil},
	{"NextHolder_HasNoLease", "a1 r1/1 -1 a2 r1/2:no e2/1:no", "x2 |", nil},
	{"FreeDocument_KeepsForeignFields", "a1", "x1 |", []bson.E{field("fence", int64(41)),
		field("waiters", bson.A{}), field("rev", int64(7)), field("when", bson.DateTime(5))}},
	{"FenceOfInt32_IsRaised", "a1", "x1 |", []bson.E{field("fence", int32(6))}},
}

// queueLives test queues, shared locks and permits.
var queueLives = []life{
	{"Enter_Held_IsQueuedAtTheEnd", "x1 x2 x3 x1 x2? p3/5", "x1 | x2 x3", nil},
	{"Enter_HeldByAnAcquisition_Waits", "a1 x2", "x1 | x2", nil},
	{"Try_LeavesNoWaiter", "x1? x2?:held x3 x2?:held", "x1 | x3", nil},
	{"Try_FreeWithWaiters_DoesNotOvertake", "x1 x2 F x3?:held a3:held s3?:held", "| x2", nil},
	{"Try_ReadersAndPermits", "s1? s2? -1 -2 p1/2? p2/2? p3/2?:held", "p1 p2 |", nil},
	{"Leave_Twice_MatchesNothing", "x1 x2 x3 x4 -3 -1 -1:no -3:no -9:no -0:no", "x2 | x4", nil},
	{"LeaveAndQueue_Permits_OnlyLeaves", "p1/1 p2/1 q1/3", "p2 |", nil},
	{"LeaveAndQueue_ByNoHolder_ChangesNothing", "x1 x2 q9/3:no", "x1 | x2", nil},
	{"Readers_FirstLeaves_TheNextIsInTheTopFields", "s1 s2 s3 -1 -3 -3:no", "s2 |", nil},
	{"Permits_AnotherLimitOrMode_IsAnError",
		"p1/2 p2/2 p3/2 p4/1:limit p4/3?:limit s4:limit x4?:limit -1 -2 x4:limit s4?:limit -3 p4/5",
		"p4 |", nil},
	{"Permits_FreeWithWaiters_AnotherLimitIsAnError",
		"p1/2 p2/2 p3/2 F x4:limit p4/3?:limit p4/2", "p3 p4 |", nil},
	{"Permits_InUseAsALock", "x1 x2 p3/2:limit -1 -2 s1 p3/2?:limit -1 a1 p3/2:limit", "x1 |", nil},
	{"Permits_ForeignRelease_AnyModeMayEnter", "p1/2 p2/2 F x3", "x3 |", nil},
	{"Evict_Holder_GrantsWithTheEvidence", "x1 x2 x3 e1 -2", "x3 |", nil},
	{"Evict_NotAsWatched", "x1 x2 x3 -2 E1:no E3:no e2:no e0:no e9:no -1 -3 e3:no", "|", nil},
	{"Evict_WaiterThatHoldsMeanwhile", "x1 x2 x3 -1 e2w:no", "x2 | x3", nil},
	{"PutFirst_AWaiter_IsNext", "x1 x2 x3 x4 f1/3 f1/3 -1 -3", "x2 | x4", nil},
	{"PutFirst_NotTheHolder_OrNotQueued",
		"x1 x2 x3 f2/3:no f1/1:no f1/9:no -1 -2 -3 s4 x5 f4/5:no", "s4 | x5", nil},
	{"RequestYield_IsOfTheHolderOnly", "x1 x2 y -1 -2 y:no s3 y:no", "s3 |", nil},
	{"GrantNext_HeldWithRoom_GrantsNothing", "g:no", "", oneOfTwoPermits()},
	{"GrantNext_NoWaiters", "x1 -1 g:no s2 s3 x4 g:no", "s2 s3 | x4", nil},
	{"StaleSharers_AreIgnored", "s1 s2 O9 -1:no e2:no r1/1:no s3 x4 e9", "s3 | x4", nil},
	{"StaleSharers_DoNotPreventAnAcquisition", "s1 s2 O9 E9:no e9 a1", "x1 |", nil},
	{"Queue_KeepsForeignFields", "x1 -1", "|", []bson.E{
		field("waiters", bson.A{}), field("rev", int64(7)), field("who", "old"),
		field("when", bson.DateTime(5))}},
	{"AbsentFields_AreNull", "x1 x2 -1", "x2 |", []bson.E{field("waiters", nil), field("sharers", nil),
		field("mode", nil), field("limit", nil)}},
	{"AbsentFields_AreEmpty", "x1 x2 -1", "x2 |", []bson.E{
		field("waiters", bson.A{}), field("sharers", bson.A{})}},
}

// oneOfTwoPermits returns the fields of a held semaphore with a free permit and a waiter. Another
// program made the permit free.
func oneOfTwoPermits() []bson.E {
	r := catalog.Request{Session: catalog.Session{TS: historicalTS}, Process: alice}
	next := r
	next.TS, next.Mode, next.Limit = otherTS, catalog.Permit, 2
	return []bson.E{field("state", int32(1)), field("ts", r.TS), field("process", alice),
		field("mode", "permit"), field("limit", int32(2)),
		field("sharers", bson.A{with(sharing(r, planted), field("when", bson.DateTime(5)))}),
		field("waiters", bson.A{plantedWaiter(next)})}
}
