package catalog

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Prunable reports whether a lock document may be deleted by [Pings.PruneLocks], with the session
// and rev by which the deletion names it. It is one of ours, understood, with nothing in it that a
// successor would miss.
func Prunable(raw bson.Raw, before time.Time) (s Session, rev int64, ok bool) {
	l, bad := ParseLock(raw)
	if bad != nil || l.Held || len(l.Waiters)+len(l.Sharers) > 0 || l.TS.IsZero() ||
		l.When.IsZero() || !l.When.Before(before) || l.Fence >= before.UnixMilli() {
		return s, 0, false
	}
	v := fieldsOf(raw).lookup("rev")
	rev, ok = v.AsInt64OK()
	return l.Session(), rev, ok && rev > 0
}
