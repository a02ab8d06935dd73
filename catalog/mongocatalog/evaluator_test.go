package mongocatalog_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An evaluator executes update pipelines and filters as the manual of MongoDB 4.4 defines them. It
// supports the stages and operators that package mongocatalog uses. It evaluates both branches of
// $cond, because a server may do so too.
type evaluator struct {
	now  time.Time
	root bson.D
	vars map[string]any
}

type missing struct{}

// The evaluator panics with a value of this type if a server would reject the arguments.
type wrong string

func fail(format string, args ...any) { panic(wrong(fmt.Sprintf(format, args...))) }

func runPipeline(doc bson.D, pipeline bson.A, now time.Time) (after bson.D, err error) {
	defer refusal(&err)
	for _, stage := range pipeline {
		e := onlyOf(stage)
		before := evaluator{now: now, root: doc}
		switch e.Key {
		case "$set":
			doc = before.set(e.Value.(bson.D))
		case "$unset":
			doc = remove(doc, strings.Split(e.Value.(string), "."))
		default:
			fail("unknown stage %s", e.Key)
		}
	}
	return doc, nil
}

func refusal(err *error) {
	switch r := recover().(type) {
	case nil:
	case wrong:
		*err = fmt.Errorf("%s", string(r))
	default:
		panic(r)
	}
}

func onlyOf(v any) bson.E {
	d, ok := v.(bson.D)
	if !ok || len(d) != 1 {
		fail("want a document of one field, got %v", v)
	}
	return d[0]
}

func (ev evaluator) set(fields bson.D) bson.D {
	doc := ev.root
	for _, e := range fields {
		if d, ok := e.Value.(bson.D); ok && (len(d) != 1 || !strings.HasPrefix(d[0].Key, "$")) {
			fail("a document in $set is merged, which is not known here")
		}
		path := strings.Split(e.Key, ".")
		if v := ev.eval(e.Value); v == (missing{}) {
			doc = remove(doc, path)
		} else {
			doc = put(doc, path, v)
		}
	}
	return doc
}

func put(doc bson.D, path []string, v any) bson.D {
	out := append(bson.D(nil), doc...)
	for i, e := range out {
		if e.Key != path[0] {
			continue
		}
		if len(path) > 1 {
			inner, _ := e.Value.(bson.D)
			v = put(inner, path[1:], v)
		}
		out[i].Value = v
		return out
	}
	if len(path) > 1 {
		v = put(nil, path[1:], v)
	}
	return append(out, bson.E{Key: path[0], Value: v})
}

func remove(doc bson.D, path []string) bson.D {
	out := bson.D{}
	for _, e := range doc {
		inner, nested := e.Value.(bson.D)
		switch {
		case e.Key != path[0]:
		case len(path) == 1:
			continue
		case nested:
			e.Value = remove(inner, path[1:])
		}
		out = append(out, e)
	}
	return out
}

// at returns the value at a path. For an array on the path, it returns the values of all documents
// in the array.
func at(v any, path []string) any {
	if len(path) == 0 {
		return v
	}
	switch v := v.(type) {
	case bson.D:
		for _, e := range v {
			if e.Key == path[0] {
				return at(e.Value, path[1:])
			}
		}
	case bson.A:
		found := bson.A{}
		for _, one := range v {
			if inner := at(one, path); inner != (missing{}) {
				found = append(found, inner)
			}
		}
		return found
	}
	return missing{}
}

func (ev evaluator) eval(x any) any {
	switch x := x.(type) {
	case string:
		return ev.reference(x)
	case bson.A:
		out := make(bson.A, 0, len(x))
		for _, one := range x {
			out = append(out, orNull(ev.eval(one)))
		}
		return out
	case bson.D:
		if len(x) == 1 && strings.HasPrefix(x[0].Key, "$") {
			return ev.call(x[0].Key, x[0].Value)
		}
		out := bson.D{}
		for _, e := range x {
			if v := ev.eval(e.Value); v != any(missing{}) {
				out = append(out, bson.E{Key: e.Key, Value: v})
			}
		}
		return out
	default:
		return x
	}
}

func (ev evaluator) reference(text string) any {
	name, isVar := strings.CutPrefix(text, "$$")
	if !isVar {
		if path, ok := strings.CutPrefix(text, "$"); ok {
			return at(ev.root, strings.Split(path, "."))
		}
		return text
	}
	path := strings.Split(name, ".")
	switch path[0] {
	case "NOW":
		return bson.NewDateTimeFromTime(ev.now)
	case "REMOVE":
		return missing{}
	}
	v, ok := ev.vars[path[0]]
	if !ok {
		fail("unknown variable %s", path[0])
	}
	return at(v, path[1:])
}

func (ev evaluator) with(x, name, value any) any {
	vars := map[string]any{}
	maps.Copy(vars, ev.vars)
	vars[name.(string)] = value
	return evaluator{ev.now, ev.root, vars}.eval(x)
}

func orNull(v any) any {
	if v == any(missing{}) {
		return nil
	}
	return v
}

func (ev evaluator) call(operator string, argument any) any {
	named, _ := argument.(bson.D)
	arg := func(name string) any { return at(named, []string{name}) }
	switch operator {
	case "$literal":
		return argument
	case "$map":
		out := bson.A{}
		for _, one := range list(operator, ev.eval(arg("input"))) {
			out = append(out, orNull(ev.with(arg("in"), arg("as"), one)))
		}
		return out
	case "$filter":
		out := bson.A{}
		for _, one := range list(operator, ev.eval(arg("input"))) {
			if truth(ev.with(arg("cond"), arg("as"), one)) {
				out = append(out, one)
			}
		}
		return out
	case "$convert":
		return convert(ev.eval(arg("input")), ev.eval(arg("to")), ev.eval(arg("onError")),
			ev.eval(arg("onNull")))
	}
	args, many := argument.(bson.A)
	if !many {
		args = bson.A{argument}
	}
	values := make([]any, 0, len(args))
	for _, one := range args {
		values = append(values, ev.eval(one))
	}
	return apply(operator, values)
}

var orders = map[string]func(order int) bool{
	"$gt":  func(order int) bool { return order > 0 },
	"$gte": func(order int) bool { return order >= 0 },
	"$lt":  func(order int) bool { return order < 0 },
	"$lte": func(order int) bool { return order <= 0 },
}

func apply(operator string, v []any) any {
	switch operator {
	case "$and", "$or":
		for _, one := range v {
			if truth(one) == (operator == "$or") {
				return operator == "$or"
			}
		}
		return operator == "$and"
	case "$not":
		return !truth(v[0])
	case "$cond":
		if truth(v[0]) {
			return v[1]
		}
		return v[2]
	case "$ifNull":
		if null(v[0]) {
			return v[1]
		}
		return v[0]
	case "$eq":
		return compare(v[0], v[1]) == 0
	case "$ne":
		return compare(v[0], v[1]) != 0
	case "$gt", "$gte", "$lt", "$lte":
		return orders[operator](compare(v[0], v[1]))
	case "$type":
		return typeName(v[0])
	case "$add", "$subtract":
		return sum(operator, v)
	case "$max":
		return greatest(v)
	case "$concat":
		return concat(v)
	case "$toLong":
		return convert(v[0], "long", wrong("$toLong"), nil)
	case "$toString":
		return convert(v[0], "string", wrong("$toString"), nil)
	default:
		return applyToArray(operator, v)
	}
}

func applyToArray(operator string, v []any) any {
	switch operator {
	case "$isArray":
		_, ok := v[0].(bson.A)
		return ok
	case "$size":
		return int32(len(list(operator, v[0])))
	case "$in":
		return contains(list(operator, v[1]), v[0])
	case "$allElementsTrue":
		return !slices.ContainsFunc(list(operator, v[0]), func(one any) bool { return !truth(one) })
	case "$arrayElemAt":
		if null(v[0]) {
			return nil
		}
		elements, i := list(operator, v[0]), whole(operator, v[1])
		if i < 0 || i >= len(elements) {
			return missing{}
		}
		return elements[i]
	case "$concatArrays":
		out := bson.A{}
		for _, one := range v {
			out = append(out, list(operator, one)...)
		}
		return out
	case "$setUnion":
		out := bson.A{}
		for _, one := range v {
			for _, element := range list(operator, one) {
				if !contains(out, element) {
					out = append(out, element)
				}
			}
		}
		return out
	case "$slice":
		elements, from, n := list(operator, v[0]), whole(operator, v[1]), whole(operator, v[2])
		if from < 0 || n < 1 {
			fail("$slice from %d, %d elements", from, n)
		}
		from = min(from, len(elements))
		return append(bson.A{}, elements[from:min(len(elements), from+n)]...)
	default:
		fail("unknown operator %s", operator)
		return nil
	}
}

func list(operator string, v any) bson.A {
	elements, ok := v.(bson.A)
	if !ok {
		fail("%s of %v, which is no array", operator, v)
	}
	return elements
}

func whole(operator string, v any) int {
	n, ok := v.(int32)
	if !ok {
		fail("%s wants an int, not %T %v", operator, v, v)
	}
	return int(n)
}

func contains(elements bson.A, v any) bool {
	return slices.ContainsFunc(elements, func(one any) bool { return compare(one, v) == 0 })
}
