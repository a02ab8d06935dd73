package claim

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// dueProblems says what is wrong with Config.Due.
func (c Config) dueProblems() (list []string) {
	if c.Due == "" {
		return nil
	}
	list = c.pathProblems("Due", c.Due)
	if slices.ContainsFunc(c.Sort, func(key bson.E) bool { return key.Key == c.Due }) {
		list = append(list, fmt.Sprintf("Sort names %q, by which Due sorts already: leave it out there", c.Due))
	}
	return list
}

// pathProblems says what is wrong with the name of a field of the user's.
func (c Config) pathProblems(what, path string) (list []string) {
	parts := strings.Split(path, ".")
	wrong := func(part string) bool { return part == "" || part[0] == '$' }
	if slices.ContainsFunc(parts, wrong) || strings.ContainsRune(path, 0) || !utf8.ValidString(path) {
		list = append(list, fmt.Sprintf("%s %q must be the name of a field, dotted at most, without a dollar", what, path))
	}
	if parts[0] == c.Field {
		list = append(list, fmt.Sprintf("%s names %q, which belongs to this package", what, path))
	}
	return list
}
