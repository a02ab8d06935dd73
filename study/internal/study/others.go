package study

import (
	"slices"
	"strings"
)

// Others returns the locks of others that are played beside ours, as far as OthersCases need them.
func Others() []Generation {
	all := []Generation{
		{Name: "redlock", Title: "Redlock, five servers", make: newRedlock,
			Source: "https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/, The " +
				"Redlock Algorithm"},
		{Name: "etcd", Title: "an etcd lease", make: newEtcd,
			Source: "https://etcd.io/docs/v3.5/learning/why/, Notes on the usage of lock and lease"},
		{Name: "zookeeper", Title: "a ZooKeeper ephemeral node", make: newZookeeper,
			Source: "https://zookeeper.apache.org/doc/current/recipes.html, Locks"},
	}
	for i := range all {
		all[i].column, all[i].held, all[i].replicaSet, all[i].other = all[i].Name, 1, true, true
	}
	return all
}

// othersCases are the cases that the locks of others play.
var othersCases = []string{"pause", "write-on-its-way", "cut-off", "clock-steps-back",
	"server-clock-steps"}

// OthersCases returns the cases that the locks of others play.
func OthersCases() []Case {
	return slices.DeleteFunc(Cases(),
		func(c Case) bool { return !slices.Contains(othersCases, c.Name) })
}

// not says why a generation cannot play a case; empty: it can.
func (c Case) not(g Generation) string {
	if g.other && !slices.Contains(othersCases, c.Name) {
		return "of others only these are played: " + strings.Join(othersCases, ", ")
	}
	return c.Not[g.column]
}
