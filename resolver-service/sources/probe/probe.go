// Package probe checks once whether a sidecar is ready: by TCP, HTTP, or gRPC's health protocol,
// each time on a connection of its own, as callers would make it. A [Prober] decides which
// addresses may be checked and how often, so that nobody can turn checks against another host.
package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// maxHeader bounds the headers of an answer, in bytes.
const maxHeader = 64 << 10

// maxMessage bounds an answer of the health protocol, which has one number, in bytes.
const maxMessage = 1 << 10

// Unchecked accepts any certificate. A check sends nothing secret, and callers verify the
// instance themselves. host is the server name, with or without a port.
func Unchecked(host string) *tls.Config {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return &tls.Config{InsecureSkipVerify: true, ServerName: host, MinVersion: tls.VersionTLS12}
}

// TCP connects, and does a TLS handshake if security is not nil. It resets the connection, since
// a closed one would stay in the kernel for a minute. ctx must come from [Prober.Wait], as for
// all checks here.
func TCP(ctx context.Context, address string, security *tls.Config) error {
	conn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // best effort
	}
	if security == nil {
		return nil
	}
	return tls.Client(conn, security).HandshakeContext(ctx)
}

// Transport returns an HTTP transport that uses each connection once.
func Transport(security *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) },
		DisableKeepAlives: true, DisableCompression: true,
		MaxResponseHeaderBytes: maxHeader, TLSClientConfig: security,
	}
}

// GRPC checks a service by gRPC's health protocol, or the whole server if service is empty. A nil
// security means plain text. https://github.com/grpc/grpc/blob/master/doc/health-checking.md
func GRPC(ctx context.Context, address, service string, security *tls.Config) error {
	transport := insecure.NewCredentials()
	if security != nil {
		transport = credentials.NewTLS(security)
	}
	var failed atomic.Pointer[error] // the error of the connection
	c, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(transport),
		grpc.WithContextDialer(func(dialling context.Context, _ string) (net.Conn, error) {
			conn, err := dial(context.WithValue(dialling, checkKey{}, ctx.Value(checkKey{})), address)
			failed.Store(&err)
			return conn, err
		}),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithUserAgent("isthmus"),
		grpc.WithReadBufferSize(maxMessage), grpc.WithWriteBufferSize(maxMessage),
		grpc.WithMaxHeaderListSize(maxHeader), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return err
	}
	defer c.Close()
	answer, err := grpc_health_v1.NewHealthClient(c).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	if err == nil {
		return serving(answer.GetStatus())
	}
	if dialled := failed.Load(); dialled != nil && *dialled != nil {
		return *dialled
	}
	return Refused(service, err)
}

func serving(s grpc_health_v1.HealthCheckResponse_ServingStatus) error {
	if s == grpc_health_v1.HealthCheckResponse_SERVING {
		return nil
	}
	return fmt.Errorf("answered %s", s)
}

// Refused explains an error of the health protocol.
func Refused(service string, err error) error {
	switch s := status.Convert(err); s.Code() {
	case codes.NotFound:
		return fmt.Errorf("it has no service %q", service)
	case codes.Unimplemented:
		return errors.New("it has no health service (grpc.health.v1.Health)")
	default:
		return fmt.Errorf("%s: %s", s.Code(), s.Message())
	}
}
