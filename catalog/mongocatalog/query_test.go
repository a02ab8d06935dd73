package mongocatalog_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The methods in this file evaluate the filters of find and update commands.

func matches(doc bson.D, filter bson.D, now time.Time) (ok bool, err error) {
	defer refusal(&err)
	return evaluator{now: now, root: doc}.matches(doc, filter), nil
}

func (ev evaluator) matches(doc any, filter bson.D) bool {
	for _, e := range filter {
		if !ev.holds(doc, e) {
			return false
		}
	}
	return true
}

func (ev evaluator) holds(doc any, e bson.E) bool {
	some := func(branches any) bool {
		matches := func(b any) bool { return ev.matches(doc, b.(bson.D)) }
		return slices.ContainsFunc(branches.(bson.A), matches)
	}
	switch e.Key {
	case "$expr":
		return truth(ev.eval(e.Value))
	case "$or":
		return some(e.Value)
	case "$nor":
		return !some(e.Value)
	}
	found := reached(doc, strings.Split(e.Key, "."))
	if conditions, ok := e.Value.(bson.D); ok && isOperators(conditions) {
		return ev.all(found, conditions)
	}
	return anyOf(found, func(v any) bool { return compare(v, e.Value) == 0 })
}

// unread replaces an array inside an array. Conditions test only its type.
type unread struct{}

func isOperators(d bson.D) bool { return len(d) > 0 && strings.HasPrefix(d[0].Key, "$") }

// reached returns the values at a path. If a value on the path is an array, the next name can be an
// index of the array or a field of its documents. Then reached returns the values of both.
func reached(v any, path []string) []any {
	if len(path) == 0 {
		return []any{v}
	}
	list, ok := v.(bson.A)
	if !ok {
		return stepped(at(v, path[:1]), path)
	}
	var found []any
	if i, err := strconv.Atoi(path[0]); err == nil && i >= 0 && i < len(list) {
		found = append(found, reached(list[i], path[1:])...)
	}
	for _, one := range list {
		if _, isDoc := one.(bson.D); isDoc {
			found = append(found, reached(one, path)...)
		}
	}
	if len(found) == 0 {
		found = []any{missing{}}
	}
	return found
}

func stepped(v any, path []string) []any {
	if v == any(missing{}) {
		return []any{missing{}}
	}
	return reached(v, path[1:])
}

// anyOf reports whether the condition holds for one of the values, or for an element of an array
// among the values.
func anyOf(found []any, is func(any) bool) bool {
	return slices.ContainsFunc(found, func(v any) bool {
		list, ok := v.(bson.A)
		return is(v) || ok && slices.ContainsFunc(list, is)
	})
}

func (ev evaluator) all(found []any, conditions bson.D) bool {
	for _, c := range conditions {
		if !ev.one(found, c) {
			return false
		}
	}
	return true
}

func (ev evaluator) one(found []any, c bson.E) bool {
	equal := func(want any) bool {
		return anyOf(found, func(v any) bool { return compare(v, want) == 0 })
	}
	switch c.Key {
	case "$exists":
		there := slices.ContainsFunc(found, func(v any) bool { return v != any(missing{}) })
		return there == truth(c.Value)
	case "$type":
		names, ok := c.Value.(bson.A)
		if !ok {
			names = bson.A{c.Value}
		}
		return anyOf(found, func(v any) bool { return slices.Contains(names, any(typeName(v))) })
	case "$gt", "$gte", "$lt", "$lte":
		return anyOf(found, func(v any) bool {
			return rank(v) == rank(c.Value) && orders[c.Key](compare(v, c.Value))
		})
	case "$ne":
		return !equal(c.Value)
	case "$in":
		return slices.ContainsFunc(c.Value.(bson.A), func(want any) bool {
			return equal(want) || want == nil && equal(missing{})
		})
	case "$nin":
		return !slices.ContainsFunc(c.Value.(bson.A), equal)
	case "$regex":
		return anyOf(found, func(v any) bool {
			text, ok := v.(string)
			return ok && regexp.MustCompile(c.Value.(string)).MatchString(text)
		})
	case "$not":
		return !ev.all(found, c.Value.(bson.D))
	case "$elemMatch":
		return ev.elemMatch(found, c.Value.(bson.D))
	}
	fail("unknown condition %s", c.Key)
	return false
}

func (ev evaluator) elemMatch(found []any, condition bson.D) bool {
	return slices.ContainsFunc(found, func(v any) bool {
		list, ok := v.(bson.A)
		return ok && slices.ContainsFunc(list, func(one any) bool {
			if _, inner := one.(bson.A); inner && isOperators(condition) {
				one = unread{} // only the type of an array in an array counts
			}
			if isOperators(condition) {
				return ev.all([]any{one}, condition)
			}
			_, isDoc := one.(bson.D)
			return isDoc && ev.matches(one, condition)
		})
	})
}
