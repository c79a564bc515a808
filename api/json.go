package api

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

// parseJSON reads one JSON value into nodes. Nothing is checked but the syntax:
// doubled fields are both there.
func parseJSON(data []byte, r *report) (*node, bool) {
	if !utf8.Valid(data) {
		r.add(position{line: 1, column: 1}, "", "the text is not UTF-8", "write it again as UTF-8")
		return nil, false
	}
	text := string(data)
	if !json.Valid(data) {
		var raw json.RawMessage
		var syntax *json.SyntaxError
		at, what := position{1, 1}, "the text ends too early"
		if err := json.Unmarshal(data, &raw); errors.As(err, &syntax) {
			at, what = positionAt(text, int(syntax.Offset)-1), strings.TrimPrefix(syntax.Error(), "json: ")
		}
		r.add(at, "", "not JSON: "+what, "write the object again with \"isthmus apply\"")
		return nil, false
	}
	p := jsonParser{text: text, at: position{1, 1}}
	root := p.value()
	return &root, true
}

func positionAt(text string, offset int) position {
	before := text[:min(max(offset, 0), len(text))]
	start := strings.LastIndexByte(before, '\n') + 1
	return position{strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[start:]) + 1}
}

// jsonParser reads text that is known to be valid JSON and UTF-8.
type jsonParser struct {
	text    string
	i       int
	at      position // of the byte at counted
	counted int
}

// position is that of the next byte. It counts on from where it was last asked, so
// that one long line is not counted again for each value in it.
func (p *jsonParser) position() position {
	p.at.column += utf8.RuneCountInString(p.text[p.counted:p.i])
	p.counted = p.i
	return p.at
}

// next skips white space and returns the byte that stands there.
func (p *jsonParser) next() byte {
	for {
		switch c := p.text[p.i]; c {
		case '\n':
			p.i++
			p.at, p.counted = position{p.at.line + 1, 1}, p.i
		case ' ', '\t', '\r':
			p.i++
		default:
			return c
		}
	}
}

func (p *jsonParser) value() node {
	c := p.next()
	n := node{at: p.position()}
	switch c {
	case '{', '[':
		n.kind = listNode
		if c == '{' {
			n.kind = mapNode
		}
		p.i++
		n.children = p.children()
	case '"':
		n.kind, n.text = stringNode, p.string()
	default:
		n.kind, n.text = p.word()
	}
	return n
}

// children reads values up to the closing bracket or brace. In valid JSON, commas
// and colons only stand where they may.
func (p *jsonParser) children() []node {
	var all []node
	for {
		switch p.next() {
		case '}', ']':
			p.i++
			return all
		case ',', ':':
			p.i++
		default:
			if all == nil {
				all = make([]node, 0, 4)
			}
			all = append(all, p.value())
		}
	}
}

func (p *jsonParser) string() string {
	start := p.i + 1
	escaped := false
	for p.i++; p.text[p.i] != '"'; p.i++ {
		if p.text[p.i] == '\\' {
			escaped = true
			p.i++
		}
	}
	p.i++
	if !escaped {
		return p.text[start : p.i-1]
	}
	var s string
	if err := json.Unmarshal([]byte(p.text[start-1:p.i]), &s); err != nil {
		return p.text[start : p.i-1] // not reached: the text is valid
	}
	return s
}

func (p *jsonParser) word() (nodeKind, string) {
	start := p.i
	for p.i < len(p.text) && !strings.ContainsRune(",]} \t\r\n", rune(p.text[p.i])) {
		p.i++
	}
	switch word := p.text[start:p.i]; {
	case word == "null":
		return nullNode, word
	case word == "true" || word == "false":
		return boolNode, word
	case strings.ContainsAny(word, ".eE"):
		return floatNode, word
	default:
		return intNode, word
	}
}
