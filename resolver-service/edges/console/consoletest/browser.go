// Package consoletest opens a console as a browser without a screen does: by HTTP with cookies,
// pages read as HTML, and forms sent with their values.
package consoletest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/html"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/login"
)

// Browser is signed in at one console. Several goroutines may use it.
type Browser struct {
	client *http.Client
	base   *url.URL
}

// Enter signs in by a URL that works once.
func Enter(ctx context.Context, enter string) (*Browser, error) {
	base, err := url.Parse(strings.TrimSpace(enter))
	if err != nil {
		return nil, err
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	b := &Browser{&http.Client{Jar: jar, Transport: &http.Transport{MaxIdleConnsPerHost: 4}, Timeout: time.Minute}, base}
	p, err := b.Get(ctx, base.RequestURI())
	if err == nil && p.Status != http.StatusOK {
		err = fmt.Errorf("enter %s: status %d: %s", base.Host, p.Status, p.Text())
	}
	return b, err
}

// Close ends connections that are idle.
func (b *Browser) Close() { b.client.CloseIdleConnections() }

// Address is the console's host and port.
func (b *Browser) Address() string { return b.base.Host }

// Get opens a page.
func (b *Browser) Get(ctx context.Context, path string) (*Page, error) {
	req, err := b.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	return b.do(req)
}

// Post sends a form, such as [Page.Form] returns.
func (b *Browser) Post(ctx context.Context, path string, form url.Values) (*Page, error) {
	req, err := b.request(ctx, http.MethodPost, path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(req)
}

// Fetch reads a page as a script does, and returns how many bytes it has and the mark of the state
// that it shows.
func (b *Browser) Fetch(ctx context.Context, path string) (size int, mark string, err error) {
	req, err := b.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Sec-Fetch-Mode", "cors")
	res, err := b.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d", path, res.StatusCode)
	}
	_, rest, _ := strings.Cut(string(text), `data-mark="`)
	mark, _, _ = strings.Cut(rest, `"`)
	return len(text), mark, err
}

// Live opens the stream of changes. It ends with ctx.
func (b *Browser) Live(ctx context.Context) (io.ReadCloser, error) {
	req, err := b.request(ctx, http.MethodGet, login.LivePath, nil)
	if err != nil {
		return nil, err
	}
	client := *b.client
	client.Timeout = 0
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("%s: status %d", login.LivePath, res.StatusCode)
	}
	return res.Body, nil
}

func (b *Browser) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	return http.NewRequestWithContext(ctx, method, b.base.Scheme+"://"+b.base.Host+path, body)
}

func (b *Browser) do(req *http.Request) (*Page, error) {
	res, err := b.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	root, err := html.Parse(res.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", req.URL.Path, err)
	}
	return &Page{res.StatusCode, Node{root}}, nil
}
