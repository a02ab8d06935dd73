package simulation

import (
	"fmt"
	"time"
)

// deadlocks are schedules in which many wait for one another, in three processes. Each begins to
// within a few seconds, holds what it has until it is told or has what it waits for, and then gives
// it back.
func deadlocks() map[string]Schedule {
	all := map[string]Schedule{}
	for name, pairs := range map[string][][2]string{
		"ring of twelve": ofMany(12, func(i int) [2]string {
			return [2]string{fmt.Sprint("r", i), fmt.Sprint("r", (i+1)%12)}
		}),
		"six pairs": ofMany(12, func(i int) [2]string {
			return [2]string{fmt.Sprint("p", i), fmt.Sprint("p", i^1)}
		}),
		"one against eleven": ofMany(12, func(i int) [2]string {
			if i == 4 {
				return [2]string{"hub", "shared"}
			}
			return [2]string{"shared", "hub"}
		}),
		"eleven behind a pair": ofMany(12, func(i int) [2]string {
			return [2]string{fmt.Sprint("x", i), fmt.Sprint("x", max(1-i, 0))}
		}),
	} {
		for _, apart := range []time.Duration{0, 300 * time.Millisecond, 3 * sec} {
			all[fmt.Sprintf("deadlock, %s, %v apart", name, apart)] = deadlock(pairs, apart)
		}
	}
	return all
}

func ofMany(n int, of func(i int) [2]string) (pairs [][2]string) {
	for i := range n {
		pairs = append(pairs, of(i))
	}
	return pairs
}

// deadlock lets each of many hold a lock and wait for another, one some time after the other.
func deadlock(pairs [][2]string, apart time.Duration) Schedule {
	how := func(name string) How { return How{Wait: time.Hour, Shared: name == "shared"} }
	var users [3][]func(*User)
	for i, pair := range pairs {
		at := 10*sec + time.Duration(i)*apart
		user := func(u *User) {
			h := u.Acquire(pair[0], how(pair[0]))
			if h != nil && u.Until(at) {
				then := How{Wait: time.Hour, Under: h}
				if other := u.Acquire(pair[1], then); other != nil {
					u.Work(other, sec)
					u.Release(other)
				}
			}
			u.Release(h)
		}
		users[i%len(users)] = append(users[i%len(users)], user)
	}
	s := Schedule{Timing: Small(), Length: 2 * time.Minute, Quiet: time.Minute}
	for _, of := range users {
		s.Processes = append(s.Processes, Process{Users: of})
	}
	return s
}
