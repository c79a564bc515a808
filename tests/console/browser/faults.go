package browser

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
)

// Faults are what the page has done wrong since this was asked last: errors and warnings of the
// console, exceptions, violations of the Content Security Policy, issues that DevTools would show,
// and requests that failed or were refused. The test fails at its end for those that nobody has
// asked for; so a test of a refusal asks.
func (p *Page) Faults() []string {
	p.t.Helper()
	Evaluate[bool](p, "true") // what was said before is here when this is answered
	return p.seen.take()
}

// AwaitFault waits for a fault with a text, and returns all until then, with those that come along.
func (p *Page) AwaitFault(text string) (faults []string) {
	p.t.Helper()
	here := func(fault string) bool { return strings.Contains(fault, text) }
	met := p.until(func() bool {
		faults = append(faults, p.Faults()...)
		return slices.ContainsFunc(faults, here)
	})
	if !met {
		p.t.Fatalf("%s has no fault with %q after %s; it has %q", p.URL(), text, limit, faults)
	}
	p.settle()
	return append(faults, p.Faults()...)
}

// seen is what a page's browser has said of it.
type seen struct {
	mu       sync.Mutex
	main     cdp.FrameID
	shown    string                       // URL of the page
	statuses map[cdp.FrameID]int          // of HTTP, of the documents of frames
	busy     bool                         // the page is being loaded
	requests map[network.RequestID]string // method and URL
	visits   []string                     // URLs of documents
	faults   []string
}

func newSeen() *seen {
	return &seen{statuses: map[cdp.FrameID]int{}, requests: map[network.RequestID]string{}}
}

func (s *seen) url() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown
}

func (s *seen) status() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statuses[s.main]
}

func (s *seen) visited() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.visits)
}

func (s *seen) loading() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy
}

func (s *seen) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.faults
	s.faults = nil
	return taken
}

// event notes an event. It runs on chromedp's goroutine, and must not ask the browser anything.
func (s *seen) event(event any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.navigation(event)
	if fault := s.fault(event); fault != "" && !slices.Contains(s.faults, fault) {
		s.faults = append(s.faults, fault)
	}
}

func (s *seen) navigation(event any) {
	switch e := event.(type) {
	case *page.EventFrameNavigated:
		if e.Frame.ParentID == "" {
			s.main, s.shown = e.Frame.ID, e.Frame.URL
		}
	case *page.EventFrameRequestedNavigation:
		s.busy = s.busy || e.FrameID == s.main
	case *page.EventFrameStartedLoading:
		s.busy = s.busy || e.FrameID == s.main
	case *page.EventFrameStoppedLoading:
		s.busy = s.busy && e.FrameID != s.main
	case *network.EventRequestWillBeSent:
		s.requests[e.RequestID] = e.Request.Method + " " + e.Request.URL
		if e.Type == network.ResourceTypeDocument {
			s.visits = append(s.visits, e.Request.URL)
		}
	case *network.EventResponseReceived:
		if e.Type == network.ResourceTypeDocument {
			s.statuses[e.FrameID] = int(e.Response.Status)
		}
	}
}

// fault is what is wrong in an event; empty for nothing.
func (s *seen) fault(event any) string {
	switch e := event.(type) {
	case *log.EventEntryAdded:
		byItself := strings.HasSuffix(e.Entry.URL, "/favicon.ico") // for a page that names no icon, at any later time
		if !byItself && (e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning) {
			return fmt.Sprintf("%s: %s (%s)", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if exception := e.ExceptionDetails.Exception; exception != nil {
			text += " " + exception.Description
		}
		return fmt.Sprintf("exception: %s (%s:%d)", text, e.ExceptionDetails.URL, e.ExceptionDetails.LineNumber+1)
	case *runtime.EventConsoleAPICalled:
		switch e.Type {
		case runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert:
			return fmt.Sprintf("console.%s: %s", e.Type, arguments(e.Args))
		}
	case *network.EventLoadingFailed:
		if !e.Canceled && e.ErrorText != "net::ERR_ABORTED" { // the page went elsewhere
			return fmt.Sprintf("request: %s: %s %s", s.requests[e.RequestID], e.ErrorText, e.BlockedReason)
		}
	case *audits.EventIssueAdded:
		if e.Issue.Code != audits.InspectorIssueCodeBounceTrackingIssue { // signing in elsewhere looks like it
			return issue(e.Issue)
		}
	}
	return ""
}

// issue tells of an issue that DevTools would show.
func issue(i *audits.InspectorIssue) string {
	if csp := i.Details.ContentSecurityPolicyIssueDetails; csp != nil {
		return fmt.Sprintf("content security policy: %s: %s %s", csp.ViolatedDirective, csp.ContentSecurityPolicyViolationType, csp.BlockedURL)
	}
	details, err := json.Marshal(i.Details)
	if err != nil {
		return fmt.Sprintf("issue: %s", i.Code)
	}
	return fmt.Sprintf("issue: %s: %s", i.Code, details)
}

// arguments are those of a call of the console, as the console shows them.
func arguments(all []*runtime.RemoteObject) string {
	var words []string
	for _, one := range all {
		text := one.Description
		if one.Type == "string" {
			text = strings.Trim(string(one.Value), `"`)
		}
		words = append(words, text)
	}
	return strings.Join(words, " ")
}
