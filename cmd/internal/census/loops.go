package census

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/singleton"
)

// A Loop is a loop or schedule of package singleton.
type Loop struct {
	singleton.Status
	Stopped   string // the reason why the settings stop it, or empty
	Malformed string // the problem with its documents, or empty
}

// Failed reports whether the latest finished round of the loop failed.
func (l Loop) Failed() bool { return l.Failures > 0 || l.State == singleton.Failed }

// Loops returns all loops and schedules: malformed ones first, then failing ones, then stopped
// ones.
func Loops(ctx context.Context, db *mongo.Database) (loops []Loop, err error) {
	store, err := singleton.NewStore(db)
	if err != nil {
		return nil, err
	}
	all, err := singleton.List(ctx, store)
	if err != nil {
		return nil, err
	}
	for _, status := range all {
		l := Loop{Status: status}
		switch {
		case status.Settings.Stopped:
			l.Stopped = "stopped"
		case status.Settings.Window != nil:
			l.Stopped = fmt.Sprintf("outside %v", *status.Settings.Window)
		}
		for _, bad := range []error{status.Err, status.SettingsErr} {
			if bad != nil {
				l.Malformed = strings.TrimPrefix(l.Malformed+"; "+bad.Error(), "; ")
			}
		}
		loops = append(loops, l)
	}
	rank := func(l Loop) int {
		return slices.Index([]bool{l.Malformed != "", l.Failed(), l.Stopped != "", true}, true)
	}
	slices.SortStableFunc(loops, func(a, b Loop) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.Failures, a.Failures))
	})
	return loops, nil
}
