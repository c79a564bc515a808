package static

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/probe"
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
	return catalog.Clip(catalog.Printable(strings.ToValidUTF8(err.Error(), "")), most) // the instance may have written it
}

func askTCP(i *catalog.AppInstance) asker {
	to := address(i)
	return func(ctx context.Context) error { return probe.TCP(ctx, to, nil) }
}

func askGRPC(i *catalog.AppInstance) asker {
	to := address(i)
	return func(ctx context.Context) error {
		var security *tls.Config
		if i.Check.TLS {
			security = probe.Unchecked("")
		}
		return probe.GRPC(ctx, to, i.Check.Service, security)
	}
}

// askHTTP follows no redirect. The status is the answer, whose body is not read.
func askHTTP(i *catalog.AppInstance) asker {
	transport := probe.Transport(probe.Unchecked(i.Check.Host))
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
