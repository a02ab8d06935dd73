package words

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// ID formats the _id of a document for people. An ObjectID has 24 hexadecimal digits, an integer is
// decimal, and a string is in quotes. Every other value is extended JSON. [ParseIDs] parses every
// result.
func ID(id bson.RawValue) string {
	if oid, is := id.ObjectIDOK(); is {
		return oid.Hex()
	}
	if text, is := id.StringValueOK(); is {
		quoted, _ := json.Marshal(text) // a string has no marshaling errors
		return string(quoted)
	}
	if id.Type == bson.TypeInt32 || id.Type == bson.TypeInt64 {
		return strconv.FormatInt(id.AsInt64(), 10)
	}
	return id.String()
}

// parseID parses an _id in one of the formats that [ID] returns. It returns a text in any other
// format as a string.
func parseID(text string) (bson.RawValue, error) {
	var value any = text
	switch oid, err := bson.ObjectIDFromHex(text); {
	case err == nil:
		value = oid
	case strings.HasPrefix(text, `"`):
		var s string
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return bson.RawValue{}, fmt.Errorf("%s is not a quoted string", Named(text))
		}
		value = s
	case text == "null":
		return bson.RawValue{Type: bson.TypeNull}, nil
	case text == "true", text == "false":
		value = text == "true"
	case strings.HasPrefix(text, "{"):
		var d bson.D
		if err := bson.UnmarshalExtJSON([]byte(`{"v":`+text+`}`), true, &d); err != nil || len(d) != 1 {
			return bson.RawValue{}, fmt.Errorf("%s is not extended JSON", Named(text))
		}
		value = d[0].Value
	default:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			value = n
		}
	}
	kind, raw, err := bson.MarshalValue(value)
	return bson.RawValue{Type: kind, Value: raw}, err
}

// ParseIDs parses several ids, each in one of the formats that [ID] returns.
func ParseIDs(texts []string) (ids []any, err error) {
	for _, text := range texts {
		id, err := parseID(text)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}
