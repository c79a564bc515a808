package browser

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Roles, as assistive technology has them, of what people click and of what they fill in.
var (
	clickable = []string{"link", "button", "checkbox", "radio", "switch", "tab", "menuitem", "DisclosureTriangle"}
	fillable  = []string{"textbox", "searchbox", "combobox", "spinbutton"}
)

// Element is a part of a page, as assistive technology knows it.
type Element struct {
	Role, Name string

	id cdp.BackendNodeID
}

// Elements are the parts of the page with one of these roles, such as "link" or "heading", in no
// order of theirs.
func (p *Page) Elements(roles ...string) (all []Element) {
	p.t.Helper()
	document := call(p, runtime.Evaluate, runtime.EvaluateParams{Expression: "document"}).Result.ObjectID
	for _, role := range roles {
		query := accessibility.QueryAXTreeParams{ObjectID: document, Role: role}
		for _, node := range call(p, accessibility.QueryAXTree, query).Nodes {
			if !node.Ignored {
				all = append(all, Element{word(node.Role), word(node.Name), node.BackendDOMNodeID})
			}
		}
	}
	return all
}

// word is the text of a value, with single blanks between its words.
func word(v *accessibility.Value) (text string) {
	if v == nil || json.Unmarshal(v.Value, &text) != nil {
		return ""
	}
	return strings.Join(strings.Fields(text), " ")
}

// find waits for the one element that has a name and one of some roles.
func (p *Page) find(name string, roles ...string) Element {
	p.t.Helper()
	var all, found []Element
	ready := p.until(func() bool {
		all = p.Elements(roles...)
		found = slices.DeleteFunc(slices.Clone(all), func(e Element) bool { return e.Name != name })
		return len(found) > 0
	})
	switch {
	case !ready:
		p.t.Fatalf("%s has no %s named %q; it has %v", p.URL(), strings.Join(roles, ", "), name, all)
	case len(found) > 1:
		p.t.Fatalf("%s has %d of the name %q: %v", p.URL(), len(found), name, found)
	}
	return found[0]
}

// Click clicks a link, a button or the like by its name: the text on it, or its label. It waits
// until the page that this leads to is loaded.
func (p *Page) Click(name string) {
	p.t.Helper()
	p.click(p.find(name, clickable...))
	p.settle()
}

func (p *Page) click(e Element) {
	p.t.Helper()
	call(p, dom.ScrollIntoViewIfNeeded, dom.ScrollIntoViewIfNeededParams{BackendNodeID: e.id})
	quads := call(p, dom.GetContentQuads, dom.GetContentQuadsParams{BackendNodeID: e.id}).Quads
	if len(quads) == 0 {
		p.t.Fatalf("%s: %s %q has no place on the page", p.URL(), e.Role, e.Name)
	}
	x, y := (quads[0][0]+quads[0][4])/2, (quads[0][1]+quads[0][5])/2
	for _, kind := range []input.DispatchMouseEventType{input.DispatchMouseEventTypeMouseMoved, input.DispatchMouseEventTypeMousePressed, input.DispatchMouseEventTypeMouseReleased} {
		event := input.DispatchMouseEventParams{Type: kind, X: x, Y: y}
		if kind != input.DispatchMouseEventTypeMouseMoved {
			event.Button, event.ClickCount = input.MouseButtonLeft, 1
		}
		call(p, input.DispatchMouseEvent, event)
	}
}

// Fill types a text into a field, by its label, in place of what is there.
func (p *Page) Fill(label, text string) {
	p.t.Helper()
	field := p.find(label, fillable...)
	call(p, dom.Focus, dom.FocusParams{BackendNodeID: field.id})
	p.function(field, "function() { this.select() }")
	if text == "" {
		p.Press("Delete")
		return
	}
	call(p, input.InsertText, input.InsertTextParams{Text: text})
}

// Choose chooses an option of a list by its text.
func (p *Page) Choose(label, option string) {
	p.t.Helper()
	chosen := p.function(p.find(label, "combobox", "listbox"), `function(text) {
		const option = [...this.options].find(o => o.text.trim() === text)
		if (!option) return false
		option.selected = true
		this.dispatchEvent(new Event('input', {bubbles: true}))
		this.dispatchEvent(new Event('change', {bubbles: true}))
		return true
	}`, option)
	if chosen != "true" {
		p.t.Fatalf("%s: %q has no option %q", p.URL(), label, option)
	}
	p.settle()
}

// Value is what stands in a field, by its label.
func (p *Page) Value(label string) (value string) {
	p.t.Helper()
	text := p.function(p.find(label, fillable...), "function() { return this.value }")
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		p.t.Fatalf("%s: %q has no value: %v", p.URL(), label, err)
	}
	return value
}

// function calls a function in JavaScript on an element, and returns its result in JSON.
func (p *Page) function(e Element, code string, arguments ...string) string {
	p.t.Helper()
	object := call(p, dom.ResolveNode, dom.ResolveNodeParams{BackendNodeID: e.id}).Object.ObjectID
	params := runtime.CallFunctionOnParams{FunctionDeclaration: code, ObjectID: object, ReturnByValue: new(true)}
	for _, argument := range arguments {
		value, _ := json.Marshal(argument) // a string
		params.Arguments = append(params.Arguments, &runtime.CallArgument{Value: value})
	}
	result := call(p, runtime.CallFunctionOn, params)
	if result.ExceptionDetails != nil {
		p.t.Fatalf("%s: %s %q: %s", p.URL(), e.Role, e.Name, result.ExceptionDetails.Exception.Description)
	}
	return string(result.Result.Value)
}

// keys are those that Press knows by a name.
var keys = map[string]string{
	"Tab": "\t", "Enter": "\r", "Space": " ", "Escape": kb.Escape, "Backspace": kb.Backspace, "Delete": kb.Delete,
	"ArrowUp": kb.ArrowUp, "ArrowDown": kb.ArrowDown, "ArrowLeft": kb.ArrowLeft, "ArrowRight": kb.ArrowRight,
	"Home": kb.Home, "End": kb.End, "PageUp": kb.PageUp, "PageDown": kb.PageDown,
}

// Press presses keys one after the other, such as "Tab", "Shift+Tab" or "a", and waits until the
// page that the last leads to is loaded.
func (p *Page) Press(names ...string) {
	p.t.Helper()
	for _, name := range names {
		name, shift := strings.CutPrefix(name, "Shift+")
		key, ok := keys[name]
		if !ok && len([]rune(name)) != 1 {
			p.t.Fatalf("press %q: no such key; there are %v", name, slices.Sorted(maps.Keys(keys)))
		}
		if !ok {
			key = name
		}
		var options []chromedp.KeyOption
		if shift {
			options = append(options, chromedp.KeyModifiers(chromedp.ModifierShift))
		}
		run(p, "press "+name, chromedp.KeyEvent(key, options...))
	}
	p.settle()
}
