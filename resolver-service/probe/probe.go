// Package probe asks a sidecar once whether it is ready: by TCP, HTTP, or gRPC's health
// protocol, each time on a connection of its own, as callers would come. A [Prober] says
// which addresses are asked and how often, so that no check is a weapon against somebody else.
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

// mostHeader is how long the headers of an answer may be.
const maxHeader = 64 << 10

// mostMessage is how long an answer of the health protocol may be; it has one number.
const maxMessage = 1 << 10

// Unchecked takes any certificate: a check asks whether an instance is ready, and says
// nothing to it; who it is, its callers check. host is the name that is asked for, with
// or without a port.
func Unchecked(host string) *tls.Config {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return &tls.Config{InsecureSkipVerify: true, ServerName: host, MinVersion: tls.VersionTLS12}
}

// TCP connects, and shakes hands if security is not nil. It resets the connection rather
// than close it: one that was closed would stand in the kernel for a minute. Like all that
// asks here, it takes the context of a turn, see [Prober.Wait].
func TCP(ctx context.Context, address string, security *tls.Config) error {
	conn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // of a connection that is not used any more
	}
	if security == nil {
		return nil
	}
	return tls.Client(conn, security).HandshakeContext(ctx)
}

// Transport is one for HTTP that uses no connection twice.
func Transport(security *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) },
		DisableKeepAlives: true, DisableCompression: true,
		MaxResponseHeaderBytes: maxHeader, TLSClientConfig: security,
	}
}

// GRPC asks by gRPC's health protocol for a service, or for the whole server where it is
// empty. A nil security is plain text.
// https://github.com/grpc/grpc/blob/master/doc/health-checking.md
func GRPC(ctx context.Context, address, service string, security *tls.Config) error {
	transport := insecure.NewCredentials()
	if security != nil {
		transport = credentials.NewTLS(security)
	}
	var failed atomic.Pointer[error] // to connect
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

// Refused says what an error of the health protocol means.
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
