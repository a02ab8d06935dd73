package mutant_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"

	"mongodlm/internal/test/mutant"
)

// mistakeEnv is the environment variable that selects a mistake by its name.
const mistakeEnv = "MONGODLM_MISTAKE"

// A place is the position of a mistake in its file.
type place struct {
	text       string
	file       *ast.File
	body       *ast.BlockStmt // function with the mistake; nil if it is outside of functions
	from, to   int            // offsets of the body, without its braces
	at         int            // offset of the replaced string
	hasResults bool
}

func placeOf(t *testing.T, m mutant.Mistake) (p place) {
	t.Helper()
	changed(t, m) // checks that the string occurs once
	p.text = source(t, m.File)
	p.at = strings.Index(p.text, m.Old)
	files := token.NewFileSet()
	var err error
	if p.file, err = parser.ParseFile(files, m.File, p.text, 0); err != nil {
		t.Fatal(err)
	}
	offset := func(at token.Pos) int { return files.Position(at).Offset }
	for _, d := range p.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		from, to := offset(f.Body.Lbrace)+1, offset(f.Body.Rbrace)
		if from <= p.at && p.at+len(m.Old) <= to {
			p.body, p.from, p.to, p.hasResults = f.Body, from, to, f.Type.Results != nil
		}
	}
	return p
}

// switchable reports whether mistakeEnv can select the mistake at run time. The mistake must be in
// the body of one function. The body must not contain a label, because a copy of the body would
// declare the label twice.
func switchable(t *testing.T, m mutant.Mistake) bool {
	t.Helper()
	p := placeOf(t, m)
	if p.body == nil {
		return false
	}
	labels := false
	ast.Inspect(p.body, func(n ast.Node) bool {
		_, is := n.(*ast.LabeledStmt)
		labels = labels || is
		return true
	})
	return !labels
}

// switched returns the content of the files with mistakes, by path. A function with a mistake gets
// a second body, which runs if mistakeEnv selects the mistake. A mistake that cannot be switched on
// and off must be the only one in mistakes. It is then compiled into the program.
func switched(t *testing.T, mistakes []mutant.Mistake) map[string]string {
	t.Helper()
	if len(mistakes) == 1 && !switchable(t, mistakes[0]) {
		return map[string]string{mistakes[0].File: changed(t, mistakes[0])}
	}
	files, insert := map[string]string{}, map[string]map[int]string{}
	for _, m := range mistakes {
		p := placeOf(t, m)
		files[m.File] = p.text
		files[path.Join(path.Dir(m.File), "mistake_made.go")] = fmt.Sprintf(
			"package %s\n\nimport \"os\"\n\nvar mistakeMade = os.Getenv(%q)\n", p.file.Name, mistakeEnv)
		if insert[m.File] == nil {
			insert[m.File] = map[int]string{}
		}
		end := "\n"
		if !p.hasResults {
			end = "\nreturn\n"
		}
		insert[m.File][p.from] += fmt.Sprintf("\nif mistakeMade == %q {%s%s%s%s}\n", m.Name,
			p.text[p.from:p.at], m.New, p.text[p.at+len(m.Old):p.to], end)
	}
	for file, at := range insert {
		var b strings.Builder
		for i, c := range []byte(files[file]) {
			b.WriteString(at[i])
			b.WriteByte(c)
		}
		files[file] = b.String()
	}
	return files
}
