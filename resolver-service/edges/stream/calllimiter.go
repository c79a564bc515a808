package stream

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/budget"
)

// What sidecars' calls may take, beside their streams: together, an app's, and each with its
// request as it came and as it is read.
const (
	callsTotal = 64 << 20
	callsShare = callsTotal / 4
	callBytes  = 2 * MaxRequestBytes
	callLimit  = 10 * time.Second // for the request to come, and for the answer
)

// MaxCalls is how many calls one app may make at a time.
const MaxCalls = callsShare / callBytes

// CallLimiter bounds the calls of sidecars. gRPC reads the request of a call before any
// interceptor has its say.
type CallLimiter struct{ budget *budget.Budget }

// NewCallLimiter makes a CallLimiter.
func NewCallLimiter() *CallLimiter { return &CallLimiter{budget.New(callsTotal, callsShare)} }

// Tap is called when a call's headers have come. It must not wait.
func (r *CallLimiter) Tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if info.FullMethodName == v1alpha1.Resolver_Watch_FullMethodName {
		return ctx, nil // has a budget of its own, and waits
	}
	release, ok := r.budget.TryAcquire(ClientOf(ctx), callBytes)
	if !ok {
		return ctx, status.Error(codes.ResourceExhausted, "too many calls at once; try again")
	}
	limited, cancel := context.WithTimeout(ctx, callLimit)
	context.AfterFunc(limited, func() { // when the call has ended, too
		cancel()
		release()
	})
	if info.FullMethodName == v1alpha1.Actors_Watch_FullMethodName {
		return ctx, nil // its request has come by then, and it waits
	}
	return limited, nil
}
