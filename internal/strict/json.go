package strict

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ParseJSON reads one JSON value into nodes. It checks the syntax only: doubled fields are
// both there.
func ParseJSON(data []byte, r *Report) (*Node, bool) {
	if !utf8.Valid(data) {
		r.Add(Position{1, 1}, "", "the text is not UTF-8", "write it again as UTF-8")
		return nil, false
	}
	text := string(data)
	if !json.Valid(data) {
		var raw json.RawMessage
		var syntax *json.SyntaxError
		at, what := Position{1, 1}, "the text ends too early"
		if err := json.Unmarshal(data, &raw); errors.As(err, &syntax) {
			at, what = positionAt(text, int(syntax.Offset)-1), strings.TrimPrefix(syntax.Error(), "json: ")
		}
		r.Add(at, "", "not JSON: "+what, "write the object again with \"isthmus apply\"")
		return nil, false
	}
	if marks(data) > MaxValues {
		r.Add(Position{1, 1}, "", fmt.Sprintf("has more than %d values", MaxValues), "write several objects")
		return nil, false
	}
	p := jsonParser{text: text, at: Position{1, 1}}
	root := p.value()
	return &root, true
}

func positionAt(text string, offset int) Position {
	before := text[:min(max(offset, 0), len(text))]
	start := strings.LastIndexByte(before, '\n') + 1
	return Position{int32(strings.Count(before, "\n") + 1), int32(utf8.RuneCountInString(before[start:]) + 1)}
}

// jsonParser reads text that is known to be valid JSON and UTF-8.
type jsonParser struct {
	text    string
	i       int
	at      Position // of the byte at counted
	counted int
}

// position is that of the next byte. It counts on from where it was last asked, so
// that one long line is not counted again for each value in it.
func (p *jsonParser) position() Position {
	p.at.Column += int32(utf8.RuneCountInString(p.text[p.counted:p.i]))
	p.counted = p.i
	return p.at
}

// next skips white space and returns the byte that stands there.
func (p *jsonParser) next() byte {
	for {
		switch c := p.text[p.i]; c {
		case '\n':
			p.i++
			p.at, p.counted = Position{p.at.Line + 1, 1}, p.i
		case ' ', '\t', '\r':
			p.i++
		default:
			return c
		}
	}
}

func (p *jsonParser) value() Node {
	c := p.next()
	n := Node{At: p.position()}
	switch c {
	case '{', '[':
		n.Kind = List
		if c == '{' {
			n.Kind = Map
		}
		p.i++
		n.Children = p.children()
	case '"':
		n.Kind, n.Text = String, p.string()
	default:
		n.Kind, n.Text = p.word()
	}
	return n
}

// children reads values up to the closing bracket or brace. In valid JSON, commas
// and colons only stand where they may.
func (p *jsonParser) children() []Node {
	var all []Node
	for {
		switch p.next() {
		case '}', ']':
			p.i++
			return all
		case ',', ':':
			p.i++
		default:
			if all == nil {
				all = make([]Node, 0, 4)
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

func (p *jsonParser) word() (Kind, string) {
	start := p.i
	for p.i < len(p.text) && !strings.ContainsRune(",]} \t\r\n", rune(p.text[p.i])) {
		p.i++
	}
	switch word := p.text[start:p.i]; {
	case word == "null":
		return Null, word
	case word == "true" || word == "false":
		return Bool, word
	case strings.ContainsAny(word, ".eE"):
		return Float, word
	default:
		return Int, word
	}
}
