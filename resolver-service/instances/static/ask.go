package static

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// timedOut ends a check that is not answered in time.
type timedOut time.Duration

// Error says how long was waited.
func (t timedOut) Error() string { return "no answer within " + time.Duration(t).String() }

// prepare makes what asks an instance that has a check.
func prepare(i *catalog.AppInstance) asker {
	ask := map[catalog.CheckKind]func(*catalog.AppInstance) asker{
		catalog.CheckTCP: askTCP, catalog.CheckHTTP: askHTTP, catalog.CheckGRPC: askGRPC,
	}[i.Check.Kind](i)
	return func(ctx context.Context) error {
		if err := ask(ctx); err != nil {
			return explain(i, err)
		}
		return nil
	}
}

// address is where an instance is asked.
func address(i *catalog.AppInstance) string {
	return netip.AddrPortFrom(i.Address.Addr(), i.Check.Port).String()
}

// failure is why a check failed, with what was asked.
type failure struct {
	what string
	err  error
}

// Error is such as "tcp 10.0.0.5:3500: connection refused".
func (f *failure) Error() string { return f.what + ": " + reason(f.err) }

// Unwrap is the reason.
func (f *failure) Unwrap() error { return f.err }

func explain(i *catalog.AppInstance, err error) error {
	return &failure{what: fmt.Sprintf("%s %s%s", i.Check.Kind, address(i), i.Check.Path), err: err}
}

// reason is the same for the same mistake each time: it leaves out what differs from one
// connection to the next.
func reason(err error) string {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed before an answer"
	}
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	const most = 200
	text := err.Error()
	return strings.Map(func(r rune) rune { // the instance may have written it
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(text[:min(len(text), most)], ""))
}

var dialer net.Dialer

// askTCP connects, and resets the connection rather than close it: one that was closed
// would stand in the kernel for a minute.
func askTCP(i *catalog.AppInstance) asker {
	to := address(i)
	return func(ctx context.Context) error {
		c, err := dialer.DialContext(ctx, "tcp", to)
		if err != nil {
			return err
		}
		_ = c.(*net.TCPConn).SetLinger(0) // of a connection that is not used any more
		return c.Close()
	}
}

// mostHeader is how long the headers of an answer may be. Its body is not read.
const mostHeader = 64 << 10

// askHTTP asks on a connection of its own each time, as callers would, and follows no
// redirect. The status is the answer.
func askHTTP(i *catalog.AppInstance) asker {
	transport := &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: mostHeader,
		TLSClientConfig: unchecked(i.Check.Host),
	}
	target, err := url.ParseRequestURI(i.Check.Path)
	if err != nil {
		return func(context.Context) error { return fmt.Errorf("the path can't be asked for: %w", err) }
	}
	target.Scheme, target.Host = "http", address(i)
	if i.Check.TLS {
		target.Scheme = "https"
	}
	return func(ctx context.Context) error {
		q := &http.Request{Method: http.MethodGet, URL: target, Host: i.Check.Host, Header: http.Header{"User-Agent": {"isthmus"}}}
		a, err := transport.RoundTrip(q.WithContext(ctx))
		if err != nil {
			return err
		}
		_ = a.Body.Close()
		if a.StatusCode < 200 || a.StatusCode > 399 {
			return fmt.Errorf("answered %d %s", a.StatusCode, http.StatusText(a.StatusCode))
		}
		return nil
	}
}

// unchecked takes any certificate: a check asks whether an instance is ready, and says
// nothing to it; who it is, its callers check.
func unchecked(host string) *tls.Config {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return &tls.Config{InsecureSkipVerify: true, ServerName: host, MinVersion: tls.VersionTLS12}
}
