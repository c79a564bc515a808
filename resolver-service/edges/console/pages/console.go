// Package pages is the pages that operators keep open in a browser: what runs, why a call goes
// where it goes, and what a change would do. It asks a resolver service by gRPC, as the person of
// the session, and knows nothing that the command line could not ask, too. Pages are written by the
// server and can be read without JavaScript. Package login decides who gets to them.
package pages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/a-h/templ"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/login"
)

// Options say what a console shows.
type Options struct {
	// Conn leads to the service. As makes a context for calls of a person; nil: the connection
	// itself says who asks.
	Conn grpc.ClientConnInterface
	As   func(context.Context, *login.Session) context.Context
	// Explain makes of a failed call's error one for people; nil: the service's own words.
	Explain func(error) error
	// Flags are those that commands on pages need to reach the same service, with a blank
	// before each.
	Flags string
	// Download says that changes are made elsewhere, as by GitOps: what was planned is downloaded, and
	// nothing is written.
	Download bool
	// Consoles are the consoles of other clusters, which pages link to.
	Consoles map[string]string
	// Address is where the service's console listens; the log has it.
	Log *slog.Logger
}

// Console serves the pages of one service.
type Console struct {
	Options
	assets   *assets
	graphs   graphs
	watch    *watch
	diagnose *diagnosis
	again    *refetches
}

// New makes a console. [Console.Run] must run while it serves.
func New(o Options) (*Console, error) {
	if o.As == nil {
		o.As = func(ctx context.Context, _ *login.Session) context.Context { return ctx }
	}
	if o.Explain == nil {
		o.Explain = func(err error) error { return errors.New(status.Convert(err).Message()) }
	}
	c := &Console{Options: o}
	var err error
	if c.assets, err = loadAssets(); err != nil {
		return nil, err
	}
	c.watch, c.diagnose, c.again = newWatch(c), &diagnosis{}, newRefetches()
	return c, nil
}

// Handler serves the pages, behind a gate of package login.
func (c *Console) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, view := range map[string]view{
		"GET /{$}":                               overviewPage,
		"GET /map":                               mapPage,
		"GET /apps":                              appsPage,
		"GET /apps/{namespace}/{id}":             appPage,
		"GET /explain":                           explainPage,
		"GET /plan":                              planForm,
		"POST /plan":                             planPage,
		"POST /plan/apply":                       applyPage,
		"GET /objects":                           objectsPage,
		"GET /objects/{kind}/{namespace}/{name}": objectPage,
		"GET /objects/{kind}/{name}":             objectPage,
		"GET /checks":                            checksPage,
		"GET /trust":                             trustPage,
		"GET /links":                             linksPage,
		"POST /links/revoke":                     revokePage,
		"GET /links/{cluster}":                   linkPage,
		"GET /sidecars":                          sidecarsPage,
		"GET /calls":                             callsPage,
		"GET /events":                            eventsPage,
		"GET /events/{id}":                       eventPage,
		"GET /search":                            searchPage,
		"GET /build":                             buildPage,
		"/":                                      missingPage,
	} {
		mux.Handle(pattern, c.page(view))
	}
	mux.HandleFunc("POST /plan/download", c.download)
	mux.HandleFunc("GET /live", c.watch.serve)
	mux.Handle("GET /assets/{name}", c.assets)
	return mux
}

// request is a request for a page, by a person.
type request struct {
	*http.Request
	*Console
	ctx     context.Context // of calls of the person
	session *login.Session
	now     time.Time

	mark string // of the newest state that was known before
}

// view makes what a page shows.
type view func(*request) (*content, error)

// content is what a page shows.
type content struct {
	Page    page
	Title   string
	Command string // that shows the same; empty where there is none
	Live    bool   // it is shown again when something changes
	Status  int    // of HTTP; 0: 200
}

// page is what a person came for. The frame around it says whose page it is, and what they may.
type page interface{ body(frame) templ.Component }

// slowest is how long calls for one page may take.
const slowest = 30 * time.Second

// page answers with a view.
func (c *Console) page(v view) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), slowest)
		defer cancel()
		session := login.SessionOf(r.Context())
		if session == nil { // no gate is in front, which only a mistake of ours can cause
			http.Error(w, "no session", http.StatusUnauthorized)
			return
		}
		q := &request{Request: r, Console: c, ctx: c.As(ctx, session), session: session, now: time.Now()}
		_, q.mark = c.watch.newest() // before the view, which may show what is newer
		look := v
		if isRefetch(r) {
			look = func(q *request) (*content, error) { return c.again.view(q, v) }
		}
		shown, err := look(q)
		if err != nil {
			shown = q.failure(err)
		}
		q.render(w, shown)
	})
}

// frame is what the layout of every page shows.
type frame struct {
	*content
	assets          *assets
	Cluster, Person string
	Path            string
	Mark            string // of the state that the page shows
	At              time.Time
	Token           string
	Flags           string
	Download        bool
	MayWrite        bool
	MayLink         bool
}

// heading is the page's title in a list of tabs.
func (f *frame) heading() string {
	if f.Cluster == "" {
		return plain(f.Title) + " · Isthmus"
	}
	return plain(f.Title) + " · " + plain(f.Cluster) + " · Isthmus"
}

func (r *request) render(w http.ResponseWriter, shown *content) {
	f := frame{
		content: shown, assets: r.assets, Path: r.URL.Path, Mark: r.mark, Person: r.session.Person, Token: r.session.Token, At: r.now, Flags: r.Flags, Download: r.Download,
		MayWrite: r.session.May(login.Write) && !r.Download, MayLink: r.session.May(login.Link),
	}
	f.Cluster, _ = r.watch.newest()
	var b bytes.Buffer
	if err := layout(f).Render(context.Background(), &b); err != nil { // a mistake in a page
		r.Log.Error("a page of the console can't be shown", "page", shown.Title, "err", err)
		http.Error(w, "this page can't be shown; the log of the console says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if shown.Status != 0 {
		w.WriteHeader(shown.Status)
	}
	_, _ = b.WriteTo(w) // a browser that went away is no fault
}

// refusal is an error that the person has caused, with the status of the answer.
type refusal struct {
	status int
	text   string
}

// Error is what the page says.
func (e *refusal) Error() string { return e.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// statuses are what codes of gRPC become for a browser.
var statuses = map[codes.Code]int{
	codes.InvalidArgument: http.StatusBadRequest, codes.NotFound: http.StatusNotFound, codes.PermissionDenied: http.StatusForbidden,
	codes.Unauthenticated: http.StatusForbidden, codes.Aborted: http.StatusConflict, codes.FailedPrecondition: http.StatusConflict,
	codes.Unavailable: http.StatusBadGateway, codes.DeadlineExceeded: http.StatusGatewayTimeout, codes.Unimplemented: http.StatusNotImplemented,
	codes.ResourceExhausted: http.StatusRequestEntityTooLarge,
}

// notShown is why there is no page to show.
type notShown string

// failure is the page for an error.
func (r *request) failure(err error) *content {
	shown := &content{Title: "Not shown", Status: http.StatusInternalServerError}
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		shown.Status, shown.Page = refused.status, notShown(refused.text)
	default:
		if code, ok := statuses[status.Code(err)]; ok {
			shown.Status = code
		}
		shown.Page = notShown(r.Explain(err).Error())
	}
	if title := http.StatusText(shown.Status); title != "" {
		shown.Title = title
	}
	return shown
}

func missingPage(r *request) (*content, error) {
	return nil, refuse(http.StatusNotFound, "there is no page %s", r.URL.Path)
}
