package consulapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/isthmus-mesh/isthmus/resolver-service/sources/probe"
)

const mostRedirects = 10

// withheld is the output of a failed check whose target is unverified: it may tell no more.
const withheld = "failed; why is told only of checks that ask the address that the service was registered from"

// ask runs the check once, until ctx ends. The output for an unverified target has nothing of
// what was answered but the status.
func (c *checkSpec) ask(ctx context.Context, unverified bool) (status, output string) {
	var err error
	switch c.kind {
	case "http":
		status, output, err = c.askHTTP(ctx, unverified)
	case "tcp":
		output = "TCP connect " + c.TCP + ": Success"
		err = probe.TCP(ctx, c.TCP, c.security(c.TCPUseTLS, c.TCP))
	case "grpc":
		address, service, _ := strings.Cut(c.GRPC, "/")
		output = "gRPC check " + c.GRPC + ": success"
		err = probe.GRPC(ctx, address, service, c.security(c.GRPCUseTLS, address))
	}
	switch {
	case err == nil:
		return cmp.Or(status, passing), output
	case unverified:
		return critical, withheld
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded):
		return critical, context.DeadlineExceeded.Error() + ": " + err.Error()
	}
	return critical, err.Error()
}

func (c *checkSpec) security(wanted bool, host string) *tls.Config {
	if !wanted {
		return nil
	}
	security := probe.Unchecked(cmp.Or(c.TLSServerName, host))
	security.InsecureSkipVerify = c.TLSSkipVerify
	return security
}

func (c *checkSpec) askHTTP(ctx context.Context, unverified bool) (status, output string, err error) {
	if unverified && !c.plain() { // a former version took it
		return "", "", errors.New("not asked")
	}
	method := cmp.Or(c.Method, http.MethodGet)
	q, err := http.NewRequestWithContext(ctx, method, c.HTTP, strings.NewReader(c.Body))
	if err != nil {
		return "", "", err
	}
	for name, values := range c.Header {
		q.Header[http.CanonicalHeaderKey(name)] = values
	}
	q.Host = cmp.Or(q.Header.Get("Host"), q.Host)
	q.Header.Set("User-Agent", cmp.Or(q.Header.Get("User-Agent"), "Consul Health Check"))
	transport := probe.Transport(c.security(true, ""))
	transport.TLSClientConfig.ServerName = c.TLSServerName
	client := &http.Client{Transport: transport, CheckRedirect: func(q *http.Request, via []*http.Request) error {
		switch {
		case unverified:
			return http.ErrUseLastResponse
		case len(via) >= mostRedirects || q.URL.Hostname() != via[0].URL.Hostname():
			return errors.New("redirected to another host, or too often, which a check does not follow")
		}
		return nil
	}}
	answer, err := client.Do(q)
	if err != nil {
		return "", "", err
	}
	defer answer.Body.Close()
	output = fmt.Sprintf("HTTP %s %s: %d %s", method, c.HTTP, answer.StatusCode, http.StatusText(answer.StatusCode))
	if !unverified {
		var body bytes.Buffer
		_, _ = io.CopyN(&body, answer.Body, longestOutput) // as much of it as comes
		output += " Output: " + strings.ToValidUTF8(body.String(), "?")
	}
	switch {
	case answer.StatusCode >= 200 && answer.StatusCode <= 299:
		return passing, output, nil
	case answer.StatusCode == http.StatusTooManyRequests:
		return warning, output, nil
	}
	return critical, output, nil
}
