package role_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mongodlm/internal/role"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

// optional lists the actions that package mongocatalog uses but no feature's role grants. If an
// action is denied, the process logs a warning and continues. getParameter reads the feature
// compatibility version of a config server.
var optional = []string{"getParameter"}

// If an error of package mongocatalog can report an action as missing, the role grants the action.
func TestOf_WhatTheAdapterNames_IsGranted(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`\bon\(catalog\.(Locks|Pings)Collection, "([^"]+)"`)
	collections := map[string]string{"Locks": "locks", "Pings": "lockpings"}
	found := 0
	files := assert.Value(filepath.Glob("../../catalog/mongocatalog/*.go"))(t)
	all := role.Of("", role.Locks, role.Lines, role.Transactions, role.Breaking, role.Pruning)
	actions := regexp.MustCompile(`(?:\bon\([^,]+, |actions = )"([^"]+)"`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text := assert.Value(os.ReadFile(file))(t)
		for _, match := range named.FindAllSubmatch(text, -1) {
			found++
			for action := range strings.SplitSeq(string(match[2]), ", ") {
				if !granted(all, collections[string(match[1])], action) {
					t.Errorf("%s: the role does not grant %s on %s", file, action, collections[string(match[1])])
				}
			}
		}
		for _, match := range actions.FindAllSubmatch(text, -1) {
			for action := range strings.SplitSeq(string(match[1]), ", ") {
				if !slices.Contains(optional, action) && !slices.ContainsFunc(all, func(p role.Privilege) bool {
					return slices.Contains(p.Actions, action)
				}) {
					t.Errorf("%s: no collection of the role has the action %s", file, action)
				}
			}
		}
	}
	if found < 6 {
		t.Errorf("only %d operations are found in the sources, want at least 6", found)
	}
}

func granted(privileges []role.Privilege, collection, action string) bool {
	return slices.ContainsFunc(privileges, func(p role.Privilege) bool {
		return p.Collection == collection && slices.Contains(p.Actions, action)
	})
}

// A role for several features contains every action of each feature, and each action only once.
func TestOf_Together_IsTheUnion(t *testing.T) {
	t.Parallel()
	together := role.Of("jobs", role.Features()...)
	seen := map[string]bool{}
	for _, p := range together {
		for _, action := range p.Actions {
			key := p.Collection + "/" + action
			if seen[key] {
				t.Errorf("%s is granted twice", key)
			}
			seen[key] = true
			if !slices.ContainsFunc(role.Features(), func(f role.Feature) bool {
				return granted(role.Of("jobs", f), p.Collection, action)
			}) {
				t.Errorf("no feature needs %s", key)
			}
		}
	}
	for _, f := range role.Features() {
		for _, p := range role.Of("jobs", f) {
			for _, action := range p.Actions {
				if !seen[p.Collection+"/"+action] {
					t.Errorf("%s on %s, for %s, is missing", action, p.Collection, f)
				}
			}
		}
	}
}

func TestParse_NamesWhatThereIs(t *testing.T) {
	t.Parallel()
	got := assert.Value(role.Parse("locks, history"))(t)
	assert.Slices(t, got, []role.Feature{role.Locks, role.History}, "got %q, want %q")
	_, err := role.Parse("locks,everything")
	if err == nil || !strings.Contains(err.Error(), "transactions") {
		t.Errorf("got %v, want the list of features", err)
	}
}
