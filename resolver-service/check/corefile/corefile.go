// Package corefile reads what CoreDNS is configured with, as far as it takes to know where queries
// for a zone go. It follows CoreDNS's rules: a query belongs to the server block with the longest
// zone, and goes to the forward whose FROM has the name.
package corefile

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Directive is a plugin of a server block, or a property of one.
type Directive struct {
	Name string
	Args []string
	Body []Directive
}

// Block is a server block.
type Block struct {
	Zones []Zone
	Body  []Directive
}

// Zone is what a block answers for. The root is empty.
type Zone struct {
	Name string // without the dot at the end, in lower case
	Port int
}

// Bounds of imports: how deep they go, how many there are, and of directives in a block.
const (
	maxDepth      = 8
	maxImports    = 1000
	maxDirectives = 10000
)

// Parse reads a Corefile. Files are what it may import, by path relative to it, such as
// custom/isthmus.server.
func Parse(text string, files map[string]string) ([]Block, error) {
	p := &parser{files: files, snippets: map[string][]Directive{}}
	return p.blocks(text, 0)
}

type parser struct {
	files    map[string]string
	snippets map[string][]Directive
	imports  int
}

func (p *parser) blocks(text string, depth int) (all []Block, err error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("imports go deeper than %d files", maxDepth)
	}
	lines, err := tokenize(text)
	if err != nil {
		return nil, err
	}
	for len(lines) > 0 {
		line := lines[0]
		if line[0] == "import" {
			for _, name := range line[1:] {
				for _, imported := range p.matching(name) {
					more, err := p.blocks(imported, depth+1)
					if err != nil {
						return nil, fmt.Errorf("%s: %w", name, err)
					}
					all = append(all, more...)
				}
			}
			lines = lines[1:]
			continue
		}
		var keys []string
		for len(lines) > 0 && lines[0][len(lines[0])-1] != "{" { // keys may stand on several lines
			keys, lines = append(keys, lines[0]...), lines[1:]
		}
		if len(lines) == 0 {
			return nil, fmt.Errorf("no block follows %q", strings.Join(keys, " "))
		}
		keys = append(keys, lines[0][:len(lines[0])-1]...)
		body, rest, err := p.body(lines[1:], depth)
		if err != nil {
			return nil, err
		}
		lines = rest
		if len(keys) == 1 && strings.HasPrefix(keys[0], "(") && strings.HasSuffix(keys[0], ")") {
			p.snippets[strings.Trim(keys[0], "()")] = body
			continue
		}
		b := Block{Body: body}
		for _, k := range keys {
			if z, ok := zoneOf(strings.TrimSuffix(k, ",")); ok {
				b.Zones = append(b.Zones, z)
			}
		}
		all = append(all, b)
	}
	return all, nil
}

// body reads directives until the brace that ends them.
func (p *parser) body(lines [][]string, depth int) (all []Directive, rest [][]string, err error) {
	if depth > maxDepth {
		return nil, nil, fmt.Errorf("blocks and imports go deeper than %d", maxDepth)
	}
	for len(lines) > 0 {
		line := lines[0]
		lines = lines[1:]
		if line[0] == "}" {
			return all, lines, nil
		}
		d := Directive{Name: line[0], Args: line[1:]}
		if n := len(d.Args); n > 0 && d.Args[n-1] == "{" {
			d.Args = d.Args[:n-1]
			if d.Body, lines, err = p.body(lines, depth+1); err != nil {
				return nil, nil, err
			}
		}
		if d.Name != "import" || len(d.Args) == 0 {
			all = append(all, d)
			continue
		}
		more, err := p.imported(d.Args[0], depth)
		if err != nil {
			return nil, nil, err
		}
		if all = append(all, more...); len(all) > maxDirectives {
			return nil, nil, fmt.Errorf("a block has more than %d directives", maxDirectives)
		}
	}
	return nil, nil, fmt.Errorf("a block has no end")
}

// imported are the directives of a snippet, or of files.
func (p *parser) imported(name string, depth int) (all []Directive, err error) {
	if snippet, ok := p.snippets[name]; ok {
		p.imports++
		if p.imports > maxImports {
			return nil, fmt.Errorf("there are more than %d imports", maxImports)
		}
		return snippet, nil
	}
	for _, text := range p.matching(name) {
		lines, err := tokenize(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		more, _, err := p.body(append(lines, []string{"}"}), depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, more...)
	}
	return all, nil
}

// matching are the texts of the files that a pattern names; none once there were too many.
func (p *parser) matching(pattern string) (all []string) {
	if p.imports++; p.imports > maxImports {
		return nil
	}
	for name, text := range p.files {
		if ok, err := path.Match(strings.TrimPrefix(pattern, "/etc/coredns/"), name); ok && err == nil {
			all = append(all, text)
		}
	}
	return all
}

// tokenize splits a text into lines of words. A brace that ends a block is a line of its own.
func tokenize(text string) (lines [][]string, err error) {
	var line []string
	var word strings.Builder
	quoted, inWord := false, false
	endWord := func() {
		if inWord {
			line = append(line, word.String())
		}
		word.Reset()
		inWord = false
	}
	endLine := func() {
		endWord()
		if len(line) > 0 {
			lines = append(lines, line)
		}
		line = nil
	}
	comment := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n' && !quoted:
			comment = false
			endLine()
		case comment:
		case quoted && c == '\\' && i+1 < len(text) && text[i+1] == '"':
			i++
			word.WriteByte('"')
		case c == '"' && (quoted || !inWord):
			quoted, inWord = !quoted, true
			if !quoted {
				endWord()
			}
		case quoted:
			word.WriteByte(c)
		case c == '#' && !inWord:
			comment = true
		case c == ' ' || c == '\t' || c == '\r':
			endWord()
		case c == '}' && !inWord && len(line) == 0:
			lines = append(lines, []string{"}"})
		default:
			inWord = true
			word.WriteByte(c)
		}
	}
	if quoted {
		return nil, fmt.Errorf("a quotation has no end")
	}
	endLine()
	return lines, nil
}

// zoneOf reads a key of a block: [dns://]zone[:port]. A zone of another scheme is none of ours.
func zoneOf(key string) (z Zone, ok bool) {
	z.Port = 53
	if scheme, rest, has := strings.Cut(key, "://"); has {
		if scheme != "dns" {
			return z, false
		}
		key = rest
	}
	if i := strings.LastIndexByte(key, ':'); i >= 0 {
		port, err := strconv.Atoi(key[i+1:])
		if err != nil {
			return z, false
		}
		key, z.Port = key[:i], port
	}
	z.Name = strings.ToLower(strings.TrimSuffix(key, "."))
	return z, key != ""
}

// For returns the blocks that take queries for a name at a port: those with the longest zone. There
// are several only if each has a view.
func For(all []Block, name string, port int) (found []Block) {
	longest := -1
	for _, b := range all {
		for _, z := range b.Zones {
			if z.Port != port || !Within(name, z.Name) || len(z.Name) < longest {
				continue
			}
			if len(z.Name) > longest {
				longest, found = len(z.Name), nil
			}
			found = append(found, b)
		}
	}
	return found
}

// Within tells whether a name is in a zone. The root has all names.
func Within(name, zone string) bool {
	name, zone = strings.ToLower(strings.TrimSuffix(name, ".")), strings.ToLower(strings.TrimSuffix(zone, "."))
	return zone == "" || name == zone || strings.HasSuffix(name, "."+zone)
}

// Forwards are the servers that a block forwards queries for a name to.
func (b *Block) Forwards(name string) []string {
	for _, d := range b.Body {
		if d.Name == "forward" && len(d.Args) > 1 && Within(name, d.Args[0]) {
			return d.Args[1:]
		}
	}
	return nil
}

// Has tells whether a block has a plugin whose arguments begin with some words.
func (b *Block) Has(name string, args ...string) bool {
	for _, d := range b.Body {
		if d.Name == name && len(d.Args) >= len(args) && strings.Join(d.Args[:len(args)], " ") == strings.Join(args, " ") {
			return true
		}
	}
	return false
}
