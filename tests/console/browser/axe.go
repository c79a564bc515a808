package browser

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
)

// axe is axe-core, see testdata/axe/README.md.
//
//go:embed testdata/axe/axe.min.js
var axe string

// wcag are axe-core's tags for the rules of WCAG 2.2, levels A and AA.
var wcag = []string{"wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"}

// Violation is what axe-core has found against a rule.
type Violation struct {
	Rule   string // such as "color-contrast"
	Help   string // what to do
	Target string // CSS selectors of the elements
}

// String is the violation in a line.
func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Rule, v.Target, v.Help) }

// Axe are the violations of WCAG 2.2 AA that axe-core finds on the page as it stands. More tags,
// such as "best-practice", add rules. It runs beside the page's own scripts, which
// do not see it, and not after [Page.WithoutScripts].
func (p *Page) Axe(tags ...string) (found []Violation) {
	p.t.Helper()
	if p.scriptless {
		p.t.Fatalf("%s: axe-core does not run where scripts don't", p.URL())
	}
	frame := call(p, page.GetFrameTree, cdp.Empty{}).FrameTree.Frame.ID
	world := call(p, page.CreateIsolatedWorld, page.CreateIsolatedWorldParams{FrameID: frame, WorldName: "axe"}).ExecutionContextID
	p.inWorld(world, axe+"; true")
	only, _ := json.Marshal(slices.Concat(wcag, tags)) // strings
	result := p.inWorld(world, `axe.run(document, {runOnly: `+string(only)+`, resultTypes: ['violations'], preload: false}).then(r =>
		r.violations.map(v => ({Rule: v.id, Help: v.help, Target: v.nodes.map(n => n.target.join(' ')).join(', ')})))`)
	if err := json.Unmarshal(result, &found); err != nil {
		p.t.Fatalf("axe-core: %v in %s", err, result)
	}
	return found
}

// inWorld evaluates an expression in a world of scripts, and returns its value in JSON.
func (p *Page) inWorld(world runtime.ExecutionContextID, code string) []byte {
	p.t.Helper()
	result := call(p, runtime.Evaluate, runtime.EvaluateParams{Expression: code, ContextID: world, AwaitPromise: new(true), ReturnByValue: new(true)})
	if result.ExceptionDetails != nil {
		p.t.Fatalf("%s: axe-core: %s", p.URL(), result.ExceptionDetails.Exception.Description)
	}
	return result.Result.Value
}
