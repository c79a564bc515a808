package consulapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/isthmus-mesh/isthmus/resolver-service/probe"
)

// asker asks once. It gives up when ctx ends.
type asker func(ctx context.Context) (status, output string)

// asker is nil for a check that asks nobody. One that is discreet tells of no answer more
// than whether it is a good one.
func (f *checkFields) asker(discreet bool) asker {
	var ask asker
	switch f.kind() {
	case "http":
		return f.askHTTP(discreet)
	case "tcp":
		ask = f.askTCP
	case "grpc":
		ask = f.askGRPC
	}
	if ask == nil || !discreet {
		return ask
	}
	return func(ctx context.Context) (status, output string) {
		if status, output = ask(ctx); status == critical {
			output = untold
		}
		return status, output
	}
}

// untold is the output of a check that failed, of which no more may be told.
const untold = "failed; why is told only of checks that ask the address that the service was registered from"

func (f *checkFields) security(host string) *tls.Config {
	if f.TLSServerName != "" {
		host = f.TLSServerName
	}
	c := probe.Unchecked(host)
	c.InsecureSkipVerify = f.TLSSkipVerify
	return c
}

func (f *checkFields) askTCP(ctx context.Context) (status, output string) {
	kind, security := "TCP", (*tls.Config)(nil)
	if f.TCPUseTLS {
		kind, security = "TCP+TLS", f.security(f.TCP)
	}
	if err := probe.TCP(ctx, f.TCP, security); err != nil {
		return critical, told(ctx, err)
	}
	return passing, kind + " connect " + f.TCP + ": Success"
}

func (f *checkFields) askGRPC(ctx context.Context) (status, output string) {
	address, service, _ := strings.Cut(f.GRPC, "/")
	var security *tls.Config
	if f.GRPCUseTLS {
		security = f.security(address)
	}
	if err := probe.GRPC(ctx, address, service, security); err != nil {
		return critical, told(ctx, err)
	}
	return passing, "gRPC check " + f.GRPC + ": success"
}

func (f *checkFields) askHTTP(discreet bool) asker {
	method, text := f.Method, f.Body
	if method == "" || discreet && !f.onlyAsks() {
		method, text = http.MethodGet, ""
	}
	if discreet && !f.plain() { // of a former version
		return func(context.Context) (status, output string) { return critical, untold }
	}
	transport := probe.Transport(f.security(""))
	transport.TLSClientConfig.ServerName = f.TLSServerName
	client := &http.Client{Transport: transport, CheckRedirect: f.redirect}
	if discreet {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return func(ctx context.Context) (status, output string) {
		q, err := http.NewRequestWithContext(ctx, method, f.HTTP, strings.NewReader(text))
		if err != nil {
			return critical, err.Error()
		}
		f.headers(q)
		answer, err := client.Do(q)
		switch {
		case err != nil && discreet:
			return critical, untold
		case err != nil:
			return critical, told(ctx, err)
		}
		defer answer.Body.Close()
		if discreet {
			output = fmt.Sprintf("HTTP %s %s: %d %s", method, f.HTTP, answer.StatusCode, http.StatusText(answer.StatusCode))
		} else {
			var body bytes.Buffer
			_, _ = io.CopyN(&body, answer.Body, longestOutput) // what there is of it
			output = fmt.Sprintf("HTTP %s %s: %s Output: %s", method, f.HTTP, answer.Status, strings.ToValidUTF8(body.String(), "?"))
		}
		switch {
		case answer.StatusCode >= 200 && answer.StatusCode <= 299:
			return passing, output
		case answer.StatusCode == http.StatusTooManyRequests:
			return warning, output
		}
		return critical, output
	}
}

func (f *checkFields) headers(q *http.Request) {
	for name, values := range f.Header {
		for _, v := range values {
			q.Header.Add(name, v)
		}
	}
	if host := q.Header.Get("Host"); host != "" {
		q.Host = host
	}
	if q.Header.Get("User-Agent") == "" {
		q.Header.Set("User-Agent", "Consul Health Check")
	}
	if q.Header.Get("Accept") == "" {
		q.Header.Set("Accept", "text/plain, text/*, */*")
	}
}

// redirect follows redirects within the host that may be asked.
func (f *checkFields) redirect(q *http.Request, via []*http.Request) error {
	switch {
	case f.DisableRedirects:
		return http.ErrUseLastResponse
	case len(via) >= mostRedirects:
		return fmt.Errorf("stopped after %d redirects", mostRedirects)
	case q.URL.Hostname() != via[0].URL.Hostname():
		return errors.New("redirected to another host, which a check does not follow")
	}
	return nil
}

// told is an error as a check's output tells it.
func told(ctx context.Context, err error) string {
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		return context.DeadlineExceeded.Error() + ": " + err.Error()
	}
	return err.Error()
}
