package consulapi

import (
	"bytes"
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

	"github.com/isthmus-mesh/isthmus/resolver-service/probe"
)

// asker asks once. It gives up when ctx ends.
type asker func(ctx context.Context) (status, output string)

// asker is nil for a check that asks nobody.
func (f *checkFields) asker() asker {
	switch f.kind() {
	case "http":
		return f.askHTTP()
	case "tcp":
		return f.askTCP
	case "grpc":
		return f.askGRPC
	}
	return nil
}

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

func (f *checkFields) askHTTP() asker {
	method := f.Method
	if method == "" {
		method = http.MethodGet
	}
	transport := probe.Transport(f.security(""))
	transport.TLSClientConfig.ServerName = f.TLSServerName
	client := &http.Client{Transport: transport, CheckRedirect: f.redirect}
	return func(ctx context.Context) (status, output string) {
		q, err := http.NewRequestWithContext(ctx, method, f.HTTP, strings.NewReader(f.Body))
		if err != nil {
			return critical, err.Error()
		}
		f.headers(q)
		answer, err := client.Do(q)
		if err != nil {
			return critical, told(ctx, err)
		}
		defer answer.Body.Close()
		var body bytes.Buffer
		_, _ = io.CopyN(&body, answer.Body, longestOutput) // what there is of it
		output = fmt.Sprintf("HTTP %s %s: %s Output: %s", method, f.HTTP, answer.Status, strings.ToValidUTF8(body.String(), "?"))
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

// checkTarget holds a check to its own instance: who registers one could otherwise have
// this machine ask any other, and read the answer.
func checkTarget(f *checkFields, address string, sender netip.Addr) error {
	var host string
	switch f.kind() {
	case "http":
		u, err := url.Parse(f.HTTP)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return &apiError{400, "Invalid check: " + quoted(f.HTTP) + " is no URL with http or https"}
		}
		host = u.Hostname()
	case "tcp":
		host = hostOf(f.TCP)
	case "grpc":
		target, _, _ := strings.Cut(f.GRPC, "/")
		host = hostOf(target)
	default:
		return nil
	}
	ip, err := netip.ParseAddr(host)
	ip = ip.Unmap()
	local := host == "localhost" || err == nil && ip.IsLoopback()
	switch {
	case local:
		if sender.IsLoopback() {
			return nil // elsewhere it is the instance that is meant, and here it would be us
		}
	case err == nil && ip == sender.Unmap(), host == address && address != "" && !ip.IsLinkLocalUnicast() && !ip.IsUnspecified():
		return nil
	}
	return &apiError{400, "Invalid check: it asks " + quoted(host) + ", and a check here may ask the service's own address or that which registers it, neither loopback from another machine nor link-local"}
}

func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
