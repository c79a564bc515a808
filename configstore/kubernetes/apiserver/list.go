package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// pageSize is how many objects a list asks for at once, as kubectl does: the API server
// holds each page in memory.
const pageSize = 500

// Page is a part of a list, or all of it.
type Page struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// Collection is some objects of one sort.
type Collection struct {
	Path         string     // such as "/api/v1/pods"
	Query        url.Values // which of them
	OnlyMetadata bool       // of the objects; the rest is left out
}

func (c Collection) request(verb string) Request {
	r := Request{Verb: verb, Method: http.MethodGet, Path: c.Path, Query: url.Values{}}
	maps.Copy(r.Query, c.Query)
	if c.OnlyMetadata {
		sort := "PartialObjectMetadata"
		if verb == "list" {
			sort += "List"
		}
		r.Accept = "application/json;as=" + sort + ";g=meta.k8s.io;v=v1"
	}
	return r
}

// Page reads a page of a collection: so many objects, or all where limit is 0, from where
// another page says to go on.
func (a *Server) Page(ctx context.Context, c Collection, limit int, from string) (Page, error) {
	r := c.request("list")
	if limit > 0 {
		r.Query.Set("limit", strconv.Itoa(limit))
	}
	if from != "" {
		r.Query.Set("continue", from)
	}
	body, err := a.Call(ctx, r)
	if err != nil {
		return Page{}, err
	}
	var p Page
	if err := json.Unmarshal(body, &p); err != nil {
		return Page{}, fmt.Errorf("at %s: the answer is not JSON: %w", a.Host(), err)
	}
	if p.Metadata.ResourceVersion == "" {
		return Page{}, fmt.Errorf("at %s: the answer is no list of Kubernetes; is this an API server?", a.Host())
	}
	return p, nil
}

// List reads all of a collection as it is at one moment, and says at which
// resourceVersion. When the pages of a slow reader are not kept so long, it is read again
// in one.
func (a *Server) List(ctx context.Context, c Collection) (items []json.RawMessage, at string, err error) {
	limit, from := pageSize, ""
	for {
		p, err := a.Page(ctx, c, limit, from)
		if Expired(err) && limit > 0 {
			items, limit, from = nil, 0, ""
			continue
		}
		if err != nil {
			return nil, "", err
		}
		items = append(items, p.Items...)
		if from = p.Metadata.Continue; from == "" {
			return items, p.Metadata.ResourceVersion, nil
		}
	}
}

// Types of events: bookmark has no object, but says how far the server is.
const (
	bookmark = "BOOKMARK"
	gone     = "DELETED"
)

var errNoVersion = errors.New("an event has no resourceVersion; is this an API server?")

// shortest is how long a watch that ends is taken to have lasted at least: where something
// between us and the API server ends each at once, there is one a second.
const shortest = time.Second

// Follower is what a stream of events is told to.
type Follower struct {
	// Opened is called each time that the server has begun to answer; nil: it need not be known.
	Opened func()
	// Take takes an object, and returns its resourceVersion.
	Take func(object json.RawMessage, deleted bool) (version string, err error)
	// Mark is told how far the server is, where it says so without an object; nil as Opened.
	Mark func(version string)
}

// Follow tells what happens in a collection after a resourceVersion, until ctx ends, Take
// fails or the server can't be watched. The error is never nil.
//
// List and Follow are the one way in which stores, sources, policies and trust bundles read
// Kubernetes. client-go's reflector in their place made the program 0.3 MB larger: it decodes each
// object to a map, and the store that it fills takes more lines than these two functions.
func (a *Server) Follow(ctx context.Context, c Collection, from string, to Follower) error {
	for {
		began := time.Now()
		err := a.watch(ctx, c, from, to.Opened, func(kind string, object json.RawMessage) (err error) {
			if kind == bookmark {
				from, err = versionOf(object)
			} else {
				from, err = to.Take(object, kind == gone)
			}
			if err == nil && from == "" {
				err = errNoVersion
			}
			if err == nil && kind == bookmark && to.Mark != nil {
				to.Mark(from)
			}
			return err
		})
		if err != nil {
			return err
		}
		if !live.Sleep(ctx, shortest-time.Since(began)) {
			return ctx.Err()
		}
	}
}

func versionOf(object json.RawMessage) (string, error) {
	var mark struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	err := json.Unmarshal(object, &mark)
	return mark.Metadata.ResourceVersion, err
}

// watch asks for what happens in a collection after a resourceVersion, in one request, which
// lasts until the server ends it, an error of take, or the context's end. It returns nil when
// the server ends it in good order, as servers do once in a while, and when credentials have changed
// since.
func (a *Server) watch(ctx context.Context, c Collection, from string, opened func(), take func(kind string, object json.RawMessage) error) error {
	r := c.request("watch")
	r.Query.Set("watch", "true")
	r.Query.Set("allowWatchBookmarks", "true")
	r.Query.Set("resourceVersion", from)
	by := a.way.Get()
	response, err := by.send(ctx, r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	changed, end := a.untilChange(ctx, by, response.Body)
	defer end()
	if opened != nil {
		opened()
	}
	decoder := json.NewDecoder(response.Body)
	for {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) || err != nil && changed() {
			return nil
		}
		if err == nil && e.Type == "ERROR" {
			refused := &Status{}
			if err = json.Unmarshal(e.Object, refused); err == nil {
				err = refused
			}
		} else if err == nil {
			err = take(e.Type, e.Object)
		}
		if err != nil {
			return fmt.Errorf("at %s: %w", a.Host(), err)
		}
	}
}

// untilChange closes the body of an answer once the server is to be reached by another way, and
// tells whether it has. Call end.
func (a *Server) untilChange(ctx context.Context, by *way, body io.Closer) (changed func() bool, end func()) {
	var other atomic.Bool
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		for live.Sleep(ctx, lookEvery) {
			if a.way.Get() != by {
				other.Store(true)
				_ = body.Close() // its reader hears of it
				return
			}
		}
	})
	return other.Load, func() {
		cancel()
		looking.Wait()
	}
}
