package tests

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/isthmus-mesh/isthmus/tests/prose"
)

// The limits of a page. Pages of other projects that read well have 12 to 15 words a sentence.
const (
	meanWords   = 15.0 // of its sentences
	longWords   = 28   // of the sentence at the 90th percentile
	nounClauses = 1.0  // in 1,000 words, or one in a page
	widestLine  = 100  // columns, outside of tables and code
)

var (
	linked = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	code   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
)

// complaints says where a page breaks a limit.
func complaints(page string) []string {
	var all []string
	for line := range strings.Lines(code.ReplaceAllString(page, "")) {
		line = strings.TrimRight(line, "\n")
		cell := strings.HasPrefix(strings.TrimSpace(line), "|") || strings.HasPrefix(line, "    ")
		if n := utf8.RuneCountInString(line); !cell && n > widestLine {
			all = append(all, fmt.Sprintf("a line of %d columns: %.60s…", n, line))
		}
	}
	p := prose.Measure(page)
	if p.Mean > meanWords {
		all = append(all, fmt.Sprintf("%.1f words a sentence; at most %.0f", p.Mean, meanWords))
	}
	if p.P90 > longWords {
		all = append(all, fmt.Sprintf("one sentence in ten has %d words or more; at most %d. The longest: %s", p.P90, longWords, p.Longest))
	}
	if p.Clauses > nounClauses && len(p.Nouns) > 1 {
		all = append(all, fmt.Sprintf("%d clauses stand for nouns in %d words; name the thing: %q", len(p.Nouns), p.Words, p.Nouns))
	}
	return all
}

// TestPlainWords holds every page to short sentences, nouns and short lines.
func TestPlainWords(t *testing.T) {
	for path, page := range pages(t) {
		for _, complaint := range complaints(page) {
			t.Errorf("%s: %s", path, complaint)
		}
	}
}

// fewSentences is how many a package has at least that is measured: fewer say little about its words.
const fewSentences = 20

// TestPlainComments holds the comments of each package's exported names to the rules of pages.
func TestPlainComments(t *testing.T) {
	for folder, text := range exportedComments(t) {
		if prose.Measure(text).Sentences < fewSentences {
			continue
		}
		for _, complaint := range complaints(text) {
			t.Errorf("comments in %s: %s", folder, complaint)
		}
	}
}

// exportedComments are the comments of what packages export, by folder, without tests and tools.
func exportedComments(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(path, "../"))
		switch {
		case err != nil:
			return err
		case d.IsDir() && below(name, "tests", "tools", "examples", "bin", ".git"):
			return fs.SkipDir
		case d.IsDir(), !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"), strings.HasSuffix(name, ".pb.go"), strings.HasSuffix(name, "_templ.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all[filepath.Dir(name)] += commentsOf(file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// commentsOf are the comments of a file's exported names, a paragraph each.
func commentsOf(file *ast.File) string {
	comments := []*ast.CommentGroup{file.Doc}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Name.IsExported() {
				comments = append(comments, decl.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() {
						comments = append(comments, decl.Doc, spec.Doc)
					}
				case *ast.ValueSpec:
					if spec.Names[0].IsExported() {
						comments = append(comments, decl.Doc, spec.Doc)
					}
				}
			}
		}
	}
	var text strings.Builder
	for _, c := range slices.Compact(comments) {
		text.WriteString(c.Text() + "\n")
	}
	return text.String()
}

func TestComplaints(t *testing.T) {
	long := "This sentence" + strings.Repeat(" goes on", 14)
	for _, c := range []struct{ name, page, want string }{
		{"short sentences", "The service drops the instance. It tells the sidecars.\n", ""},
		{"a long one", strings.ReplaceAll(long, " on go", " on\ngo") + ".\n", "30.0 words a sentence"},
		{"fenced code and tables have no sentences", "```sh\n" + long + "\n```\n| " + long + " |\n", ""},
		{"items of a list are apart", "- " + long[:60] + "\n- " + long[:60] + "\n", ""},
		{"a name with a small letter begins a sentence", "The sidecar asks again and again. `daprd` waits for it.\n", ""},
		{"nouns of clauses", "The app of who has the address counts. It keeps what it knows.\n", "2 clauses"},
		{"a wide line", strings.Repeat("Short words. ", 9) + "\n", "a line of 117 columns"},
		{"a wide line of code", "    " + strings.Repeat("Short words. ", 9) + "\n", ""},
	} {
		got := strings.Join(complaints(c.page), "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q; want %q", c.name, got, c.want)
		}
	}
}

// anchors are the names that links to a page may end with.
func anchors(page string) []string {
	var all []string
	for line := range strings.Lines(code.ReplaceAllString(page, "")) {
		if text, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			text = linked.ReplaceAllString(strings.TrimSpace(text), "$1")
			name := strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
					return unicode.ToLower(r)
				}
				return -1
			}, text)
			all = append(all, name)
		}
	}
	for _, match := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(page, -1) {
		all = append(all, match[1])
	}
	return all
}
