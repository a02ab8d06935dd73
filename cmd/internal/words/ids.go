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
	value := text
	switch oid, err := bson.ObjectIDFromHex(text); {
	case err == nil:
		value = `{"$oid":"` + oid.Hex() + `"}`
	case !json.Valid([]byte(text)) && strings.IndexAny(text, `"{`) == 0:
		return bson.RawValue{}, fmt.Errorf("%s is not a quoted string and not extended JSON",
			Named(text))
	case !json.Valid([]byte(text)):
		quoted, _ := json.Marshal(text) // a string has no marshaling errors
		value = string(quoted)
	}
	var doc bson.Raw
	if err := bson.UnmarshalExtJSON([]byte(`{"v":`+value+`}`), false, &doc); err != nil {
		return bson.RawValue{}, fmt.Errorf("%s is not extended JSON: %w", Named(text), err)
	}
	return doc.Lookup("v"), nil
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
