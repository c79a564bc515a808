package static

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// mostMessage is how long an answer of the health protocol may be; it has one number.
const mostMessage = 1 << 10

// askGRPC asks by gRPC's health protocol, on a connection of its own each time:
// https://github.com/grpc/grpc/blob/master/doc/health-checking.md
func askGRPC(i *catalog.AppInstance) asker {
	to := address(i)
	security := insecure.NewCredentials()
	if i.Check.TLS {
		security = credentials.NewTLS(unchecked(""))
	}
	return func(ctx context.Context) error {
		var failed atomic.Pointer[error] // to connect
		c, err := grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(security),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				conn, err := dialer.DialContext(ctx, "tcp", to)
				failed.Store(&err)
				return conn, err
			}),
			grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithUserAgent("isthmus"),
			grpc.WithReadBufferSize(mostMessage), grpc.WithWriteBufferSize(mostMessage),
			grpc.WithMaxHeaderListSize(mostHeader), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostMessage)))
		if err != nil {
			return err
		}
		defer c.Close()
		answer, err := grpc_health_v1.NewHealthClient(c).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: i.Check.Service})
		if err == nil {
			return serving(answer.GetStatus())
		}
		if dialled := failed.Load(); dialled != nil && *dialled != nil {
			return *dialled
		}
		return refused(i.Check.Service, err)
	}
}

func serving(s grpc_health_v1.HealthCheckResponse_ServingStatus) error {
	if s == grpc_health_v1.HealthCheckResponse_SERVING {
		return nil
	}
	return fmt.Errorf("answered %s", s)
}

// refused says what an error of the protocol means.
func refused(service string, err error) error {
	switch s := status.Convert(err); s.Code() {
	case codes.NotFound:
		return fmt.Errorf("it has no service %q", service)
	case codes.Unimplemented:
		return errors.New("it has no health service (grpc.health.v1.Health)")
	default:
		return fmt.Errorf("%s: %s", s.Code(), s.Message())
	}
}
