package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// completion prints what makes a shell complete the words of this command line.
type completion struct{ shell string }

func (v *completion) flags(*flag.FlagSet) {}
func (v *completion) secrets() string     { return "" }

func (v *completion) accept(c call) error {
	args := append(c.args, c.after...)
	if len(args) != 1 || scripts[args[0]] == "" {
		return errors.New("give the shell: bash, zsh or fish")
	}
	v.shell = args[0]
	return nil
}

func (v *completion) run(_ context.Context, s stdio) error {
	_, err := io.WriteString(s.out, strings.TrimPrefix(scripts[v.shell], "\n"))
	return err
}

// askWord is the hidden command that the scripts run. It gets the line on its standard input, where no other user of the
// machine sees a password that stands in it.
const askWord = "__complete"

// The scripts. Candidates come one a line; where there are none, files are offered.
var scripts = map[string]string{
	"bash": `
_distlock() {
  local IFS=$'\n'
  COMPREPLY=($(printf %s "${COMP_LINE:0:COMP_POINT}" | "$1" ` + askWord + ` bash 2>/dev/null))
}
complete -o default -F _distlock distlock
`,
	"zsh": `
#compdef distlock
_distlock() {
  local -a found
  found=("${(@f)$(print -rn -- "${(j: :)words[1,CURRENT]}" | ${(Q)words[1]} ` + askWord + ` zsh 2>/dev/null)}")
  found=("${(@)found:#}")
  if (( ${#found} )); then compadd -- "${found[@]}"; else _files; fi
}
compdef _distlock distlock
`,
	"fish": `
function __distlock_complete
    commandline -cp | command distlock ` + askWord + ` fish 2>/dev/null
end
complete -c distlock -f -a '(__distlock_complete)'
for file in uri-file log dir token-file tls-cert tls-key
    complete -c distlock -l $file -r -F
end
`,
}

// offer answers the scripts. It never fails: who types wants no errors.
func offer(ctx context.Context, shell string, s stdio) {
	line, err := io.ReadAll(io.LimitReader(s.in, maxURIFile))
	if err != nil {
		return
	}
	words, open := split(strings.TrimSuffix(string(line), "\n")) // which fish adds
	if i := slices.IndexFunc(words, func(w string) bool { return filepath.Base(w) == "distlock" }); i > 0 {
		words = words[i:] // behind assignments
	}
	if len(words) < 2 {
		return
	}
	current := words[len(words)-1]
	var out bytes.Buffer
	for _, word := range candidates(ctx, words[1:]) {
		if shell == "bash" {
			word = forBash(word, current, open)
		}
		if word != "" {
			fmt.Fprintln(&out, word)
		}
	}
	_, _ = s.out.Write(out.Bytes())
}

// forBash writes a candidate as bash takes it: without what stands before the last colon or equals sign, which it takes
// for words of their own, and quoted, since it puts it into the line as it is. Empty when that cannot be done.
func forBash(word, current string, open rune) string {
	if open == 0 {
		word, current = quoted(word), quoted(current)
	} else if strings.ContainsRune(word, open) || open == '"' && strings.ContainsAny(word, "$`\\!") {
		return ""
	}
	if strings.HasPrefix(word, "'") || open != 0 {
		return word
	}
	return word[strings.LastIndexAny(current, ":=")+1:]
}

// quoted writes a word for a shell, in quotes where it has more than letters, digits and harmless signs.
func quoted(word string) string {
	harmless := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+,=", r)
	}
	if strings.IndexFunc(word, func(r rune) bool { return !harmless(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// split takes a line apart as a shell does, up to the word that is being typed, which is the last one and may be empty.
// open is the quote in which the line ends, or 0.
func split(line string) (words []string, open rune) {
	var word strings.Builder
	escaped, begun := false, false
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && open != '\'':
			escaped, begun = true, true
		case open != 0 && r == open:
			open = 0
		case open != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			open, begun = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	return append(words, word.String()), open
}

// candidates are the words with which the last one can be completed; words are those behind distlock.
func candidates(ctx context.Context, words []string) []string {
	current := words[len(words)-1]
	var all []string
	if len(words) == 1 {
		for _, t := range topics() {
			all = append(all, t.name)
		}
		return beginning(append(all, "help"), current)
	}
	t, ok := find(words[0])
	before := words[1 : len(words)-1]
	if !ok || slices.Contains(before, "--") {
		return nil
	}
	cmd := t.make()
	f := flag.NewFlagSet(t.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	cmd.flags(f)
	if strings.HasPrefix(current, "-") {
		f.VisitAll(func(one *flag.Flag) { all = append(all, "--"+one.Name) })
		return beginning(all, current)
	}
	if len(before) > 0 && wantsValue(f, before[len(before)-1]) {
		return nil
	}
	given, err := parse(f, before)
	if err != nil || len(given.args) > 0 {
		return nil
	}
	switch kind, _, _ := strings.Cut(t.usage, " "); kind {
	case "SHELL":
		return beginning([]string{"bash", "zsh", "fish"}, current)
	case "NAME", "[NAME]", "COLLECTION":
		return beginning(stored(ctx, f, given, kind == "COLLECTION", current), current)
	}
	return nil
}

func beginning(all []string, with string) []string {
	return slices.DeleteFunc(all, func(one string) bool { return !strings.HasPrefix(one, with) })
}

// wantsValue reports whether a word is a flag whose value comes next.
func wantsValue(f *flag.FlagSet, word string) bool {
	if !strings.HasPrefix(word, "-") || strings.Contains(word, "=") {
		return false
	}
	one := f.Lookup(strings.TrimLeft(word, "-"))
	if one == nil {
		return false
	}
	yes, is := one.Value.(interface{ IsBoolFlag() bool })
	return !is || !yes.IsBoolFlag()
}

// How long the server is asked, and how many names are offered.
const (
	askLimit    = 2 * time.Second
	mostOffered = 200
)

// stored are the names of the locks, or of the collections with rows to claim, that begin as the current word does. Those
// that a person could not make out are left out.
func stored(ctx context.Context, f *flag.FlagSet, given call, collections bool, current string) []string {
	value := func(name string) string { return f.Lookup(name).Value.String() }
	at := connection{uri: value("uri"), uriFile: value("uri-file"), database: value("database")}
	given.warn = func(string) {}
	if at.accept(given) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	st, err := at.open(ctx, 1, zerolog.Nop())
	if err != nil {
		return nil
	}
	defer st.close()
	locks := st.primary(at.database).Collection(catalog.LocksCollection)
	if collections {
		found, _ := queuesSeen(ctx, locks) // nothing is offered when that fails
		return ours(found, at.database)
	}
	cursor, err := locks.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: current}}}},
		options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(mostOffered).
			SetProjection(bson.D{{Key: "_id", Value: 1}}))
	var docs []bson.Raw
	if err != nil || cursor.All(ctx, &docs) != nil {
		return nil
	}
	var names []string
	for _, doc := range docs {
		if name, ok := doc.Lookup("_id").StringValueOK(); ok && name != "" && label(name) == name {
			names = append(names, name)
		}
	}
	return names
}

// ours are the collections of those namespaces that are in the database.
func ours(namespaces []string, database string) []string {
	var found []string
	for _, namespace := range namespaces {
		if collection, is := strings.CutPrefix(namespace, database+"."); is && label(collection) == collection {
			found = append(found, collection)
		}
	}
	return found
}
