package browser

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// Page is a tab of one person: it shares cookies with no other Page. What it can't do fails its
// test at once. At the end of the test it fails for faults that nobody has asked for, see
// [Page.Faults].
type Page struct {
	t     testing.TB
	ctx   context.Context
	seen  *seen
	media map[string]string // see Prefer

	scriptless bool // see WithoutScripts
}

// Page opens an empty tab, 1440 pixels wide.
func (b *Browser) Page(t testing.TB) *Page {
	t.Helper()
	p := &Page{t: t, seen: newSeen(), media: map[string]string{}}
	ctx, end := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.seen.event))
	p.ctx = ctx
	t.Cleanup(end)
	t.Cleanup(func() {
		for _, fault := range p.Faults() {
			t.Errorf("%s: %s", p.seen.url(), fault)
		}
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	call(p, audits.Enable, cdp.Empty{})
	p.Viewport(1440, 900)
	return p
}

// call has the browser carry out a command of the DevTools protocol.
func call[P, R any](p *Page, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	if err != nil {
		p.t.Fatalf("%s: %s: %v", p.seen.url(), command.Method, err)
	}
	return result
}

// run has the browser carry out an action of chromedp.
func run[T any](p *Page, what string, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	result, err := chromedp.Run(ctx, action)
	if err != nil {
		p.t.Fatalf("%s: %s: %v", p.seen.url(), what, err)
	}
	return result
}

// Evaluate is the value of an expression in JavaScript, for what no method of a Page tells. The
// page's policy does not bind it, and it works without scripts, too. Where the page is about to
// become another, it is the value in that.
func Evaluate[T any](p *Page, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	for {
		value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
		if err == nil {
			return value
		}
		if refused := (*cdproto.Error)(nil); !errors.As(err, &refused) || !strings.Contains(refused.Message, "context") && !strings.Contains(refused.Message, "navigated") {
			p.t.Fatalf("%s: %s: %v", p.seen.url(), expression, err)
		}
	}
}

// Open opens a URL as if it was typed, waits until it is loaded, and returns its HTTP status.
func (p *Page) Open(url string) int {
	p.t.Helper()
	response := run(p, "open "+url, chromedp.NavigateResponse(url))
	if response == nil {
		return 0
	}
	return int(response.Status)
}

// Status is the HTTP status of the page that is shown.
func (p *Page) Status() int { return p.seen.status() }

// URL is where the page is.
func (p *Page) URL() string {
	p.t.Helper()
	return Evaluate[string](p, "location.href")
}

// Visited are the URLs that the tab has been at, redirects with them, in their order.
func (p *Page) Visited() []string { return p.seen.visited() }

// Title is what stands on the tab.
func (p *Page) Title() string {
	p.t.Helper()
	return Evaluate[string](p, "document.title")
}

// Text is the text that the page shows.
func (p *Page) Text() string {
	p.t.Helper()
	return Evaluate[string](p, "document.body ? document.body.innerText : ''")
}

// Await waits until the page shows a text, a minute at most.
func (p *Page) Await(text string) {
	p.t.Helper()
	if shown := ""; !p.until(func() bool { shown = p.Text(); return strings.Contains(shown, text) }) {
		p.t.Fatalf("%s does not show %q; it shows:\n%s", p.URL(), text, shown)
	}
}

// until waits for a condition of the page, and tells whether it came true in time.
func (p *Page) until(met func() bool) bool {
	p.t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if met() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// settle waits until the page that a click or a key leads to is loaded, where it leads to one.
func (p *Page) settle() {
	p.t.Helper()
	Evaluate[bool](p, "true") // what the page began at once is known when this is answered
	time.Sleep(settling)
	if !p.until(func() bool { return !p.seen.loading() }) {
		p.t.Fatalf("%s is still loading after %s", p.seen.url(), limit)
	}
}

// settling is how long a browser may take to begin to load a page, after a click. A test that
// wants to know more than that awaits a text.
const settling = 50 * time.Millisecond

// Cookies are those that the page's URL is asked with.
func (p *Page) Cookies() []*network.Cookie {
	p.t.Helper()
	return call(p, network.GetCookies, network.GetCookiesParams{URLs: []string{p.URL()}}).Cookies
}
