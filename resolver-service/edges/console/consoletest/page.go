package consoletest

import (
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Page is an answer.
type Page struct {
	Status int
	Node
}

// Node is an element of a page with all that is in it.
type Node struct{ *html.Node }

// Text is what people read of it, with single blanks.
func (n Node) Text() string {
	var parts []string
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			parts = append(parts, d.Data)
		}
	}
	return strings.Join(strings.Fields(strings.Join(parts, "")), " ")
}

// Attr is the value of an attribute; empty without it.
func (n Node) Attr(name string) string {
	for _, a := range n.Node.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// All are the elements below that have an attribute of this value, in their order.
func (n Node) All(attribute, value string) (all []Node) {
	for d := range n.Descendants() {
		if one := (Node{d}); d.Type == html.ElementNode && slices.Contains(strings.Fields(one.Attr(attribute)), value) {
			all = append(all, one)
		}
	}
	return all
}

// Elements are those below of this name.
func (n Node) Elements(name string) (all []Node) {
	for d := range n.Descendants() {
		if d.Data == name && d.Type == html.ElementNode {
			all = append(all, Node{d})
		}
	}
	return all
}

// Table is the body of the table whose caption begins so, cell by cell; false without it.
func (n Node) Table(caption string) (rows [][]Node, ok bool) {
	for _, t := range n.Elements("table") {
		if c := t.Elements("caption"); len(c) == 0 || !strings.HasPrefix(c[0].Text(), caption) {
			continue
		}
		for _, tr := range t.Elements("tbody")[0].Elements("tr") {
			var row []Node
			for c := range tr.ChildNodes() {
				if c.DataAtom == atom.Td || c.DataAtom == atom.Th {
					row = append(row, Node{c})
				}
			}
			rows = append(rows, row)
		}
		return rows, true
	}
	return nil, false
}

// Form are the fields of the form that is sent to a path, as they are filled in; nil without it.
func (n Node) Form(action string) url.Values {
	for _, f := range n.Elements("form") {
		if f.Attr("action") != action {
			continue
		}
		values := url.Values{}
		for _, i := range f.Elements("input") {
			values.Add(i.Attr("name"), i.Attr("value"))
		}
		for _, t := range f.Elements("textarea") {
			text := ""
			for c := range t.ChildNodes() {
				text += c.Data
			}
			values.Add(t.Attr("name"), strings.ReplaceAll(text, "\n", "\r\n")) // as browsers send it
		}
		return values
	}
	return nil
}
