package main

import (
	"bytes"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

// page is one file of Markdown, and what the site has of it.
type page struct {
	source, target, title, body string
	entries                     []entry
}

// entry is a heading with the text below it, as search looks through it.
type entry struct {
	URL     string `json:"u"`
	Page    string `json:"p"`
	Heading string `json:"h"`
	Text    string `json:"t"`
}

var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.Linkify),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(html.WithUnsafe()), // pages have anchors and comments
)

// render makes a page. Names are the files that become pages: links to these lead to them, and links
// to other files to the repository.
func render(source string, content []byte, names []string) *page {
	p := &page{source: source, target: target(source)}
	doc := markdown.Parser().Parse(text.NewReader(content), parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = []byte(p.follow(string(n.Destination), names))
		case *ast.Heading:
			p.heading(n, content)
		case *ast.Text:
			p.add(string(n.Segment.Value(content)), n.SoftLineBreak())
		case *ast.FencedCodeBlock:
			p.add(string(n.Lines().Value(content)), true)
		case *ast.Paragraph, *ast.ListItem, *ast.TextBlock:
			p.add("", true)
		default:
			if n.Kind().String() == "TableCell" {
				p.add("", true)
			}
		}
		return ast.WalkContinue, nil
	})
	for i := range p.entries {
		p.entries[i].Page = p.title
		p.entries[i].Text = strings.Join(strings.Fields(p.entries[i].Text), " ")
	}
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, content, doc); err != nil {
		panic(err) // a buffer takes everything
	}
	// What scrolls sideways can be reached by keyboard.
	p.body = strings.NewReplacer("<pre>", `<pre tabindex="0">`, "<table>", `<div class="table" tabindex="0"><table>`, "</table>", "</table></div>").Replace(b.String())
	return p
}

// heading begins an entry of the search.
func (p *page) heading(n *ast.Heading, content []byte) {
	var title strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			title.Write(t.Segment.Value(content))
		}
		return ast.WalkContinue, nil
	})
	if p.title == "" {
		p.title = title.String()
		if p.source == "README.md" {
			p.title = "Isthmus"
		}
		p.entries = append(p.entries, entry{URL: p.target, Heading: p.title})
		return
	}
	id, _ := n.AttributeString("id")
	p.entries = append(p.entries, entry{URL: p.target + "#" + string(id.([]byte)), Heading: title.String()})
}

func (p *page) add(words string, space bool) {
	if len(p.entries) == 0 {
		return
	}
	if space {
		words += " "
	}
	p.entries[len(p.entries)-1].Text += words
}

// follow is where a link of a page leads in the site.
func (p *page) follow(to string, names []string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Path == "" {
		return to
	}
	file := path.Join(path.Dir(p.source), u.Path)
	if strings.HasPrefix(file, "docs/pictures/") {
		return to
	}
	if !slices.Contains(names, file) {
		return repository + file
	}
	u.Path = strings.Repeat("../", strings.Count(p.target, "/")) + target(file)
	return u.String()
}

// anchors names headings as GitHub does, so that links to them hold in both places.
type anchors struct{}

func (a anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	name := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, linkText(string(value)))
	return []byte(name)
}

func (a anchors) Put([]byte) {}

// linkText is a heading without the targets of its links.
func linkText(s string) string {
	for {
		before, rest, ok := strings.Cut(s, "](")
		_, after, closed := strings.Cut(rest, ")")
		if !ok || !closed {
			return s
		}
		s = before + after
	}
}
