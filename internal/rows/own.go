package rows

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// own is said of the events of a change stream that are of rows of the queue, as far as an event
// tells: one of a document that was added, or replaced, has it. Of others it is not known; nor is
// it in a collection that compares texts in its own way, as a change stream does not.
func (m *Mongo) own() bson.D {
	filter, err := bson.Marshal(m.filter)
	if err != nil || len(m.filter) == 0 || m.collated.Load() {
		return nil
	}
	is, ok := within("fullDocument.", filter)
	if !ok {
		return nil
	}
	return d("$or", bson.A{d("operationType", d("$nin", bson.A{"insert", "replace"})), is})
}

// plain are the operators that say the same of a field of an event.
var plain = []string{"$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$type",
	"$not", "$regex", "$options", "$mod", "$all", "$size", "$elemMatch"}

// within is a filter of documents as one of what has them in a field, whose name ends in a dot;
// false where it has something that cannot be said so.
func within(name string, filter bson.Raw) (is bson.D, ok bool) {
	elements, err := filter.Elements()
	if err != nil {
		return nil, false
	}
	for _, one := range elements {
		switch key := one.Key(); {
		case slices.Contains([]string{"$and", "$or", "$nor"}, key):
			list, _ := one.Value().ArrayOK()
			values, err := list.Values()
			var all bson.A
			for _, value := range values {
				in, isDoc := value.DocumentOK()
				part, can := within(name, in)
				if !isDoc || !can {
					return nil, false
				}
				all = append(all, part)
			}
			if err != nil || all == nil {
				return nil, false
			}
			is = append(is, e(key, all))
		case strings.HasPrefix(key, "$") || !isPlain(one.Value()):
			return nil, false
		default:
			is = append(is, e(name+key, one.Value()))
		}
	}
	return is, true
}

func isPlain(condition bson.RawValue) bool {
	in, _ := condition.DocumentOK()
	elements, _ := in.Elements()
	return !slices.ContainsFunc(elements, func(one bson.RawElement) bool {
		key := one.Key()
		return strings.HasPrefix(key, "$") &&
			(!slices.Contains(plain, key) || key == "$not" && !isPlain(one.Value()))
	})
}
