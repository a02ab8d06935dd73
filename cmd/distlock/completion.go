package main

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// completion prints what makes a shell complete the words of this command line.
type completion struct{ shell string }

func (v *completion) flags(*pflag.FlagSet) {}
func (v *completion) secrets() string      { return "" }

// shells are those that it knows.
var shells = []string{"bash", "zsh", "fish"}

func (v *completion) accept(c call) error {
	args := append(c.args, c.after...)
	if len(args) != 1 || !slices.Contains(shells, args[0]) {
		return errors.New("give the shell: bash, zsh or fish")
	}
	v.shell = args[0]
	return nil
}

func (v *completion) run(_ context.Context, s stdio) error {
	top := root(s)
	switch v.shell {
	case "bash":
		return top.GenBashCompletionV2(s.out, true)
	case "zsh":
		return top.GenZshCompletion(s.out)
	}
	return top.GenFishCompletion(s.out, true)
}

// How long the server is asked, and how many names are offered.
const (
	askLimit    = 2 * time.Second
	mostOffered = 200
)

// offered are the words that may stand where a command takes its first argument.
func (t topic) offered(ctx context.Context, v command, begun string) []string {
	kind := strings.Trim(strings.Fields(t.usage + " -")[0], "[]")
	if kind == "SHELL" {
		return shells
	}
	if at, ok := v.(interface {
		stored(ctx context.Context, collections bool, begun string) []string
	}); ok && (kind == "NAME" || kind == "COLLECTION") {
		return at.stored(ctx, kind == "COLLECTION", begun)
	}
	return nil
}

// harmless is a name that no shell takes for more than a word, and no terminal for more than text.
var harmless = regexp.MustCompile(`^[\w./:@%+,=-]+$`)

// stored are the names of the locks from that which was begun on, or the collections with rows to
// claim.
func (c *connection) stored(ctx context.Context, collections bool, begun string) []string {
	if c.accept(call{warn: func(string) {}}) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	st, err := c.open(ctx, 1, zerolog.Nop())
	if err != nil {
		return nil
	}
	defer st.close()
	locks := st.primary(c.database).Collection(catalog.LocksCollection)
	var names []string
	if collections {
		found, _ := queuesSeen(ctx, locks) // nothing is offered when that fails
		for _, namespace := range found {
			if collection, ours := strings.CutPrefix(namespace, c.database+"."); ours {
				names = append(names, collection)
			}
		}
	} else {
		cursor, err := locks.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: begun}}}},
			options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(mostOffered).
				SetProjection(bson.D{{Key: "_id", Value: 1}}))
		var docs []struct {
			ID any `bson:"_id"`
		}
		if err != nil || cursor.All(ctx, &docs) != nil {
			return nil
		}
		for _, doc := range docs {
			name, _ := doc.ID.(string)
			names = append(names, name)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !harmless.MatchString(name) || !strings.HasPrefix(name, begun)
	})
}
