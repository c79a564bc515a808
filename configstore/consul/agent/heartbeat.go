package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"
)

// WithHeartbeat asks every Heartbeat who leads, and waits heartbeatTimeout for the answer. A query
// that waits for a change is silent for minutes also when nobody is there any more, and
// the keepalive of TCP reaches no further than the next proxy.
const (
	Heartbeat        = 5 * time.Second
	heartbeatTimeout = 4 * time.Second
)

// WithHeartbeat calls f with a context that ends, with the reason, when Consul does not answer or
// has lost its leader.
func WithHeartbeat(ctx context.Context, client *api.Client, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var beating sync.WaitGroup
	defer beating.Wait()
	defer cancel(nil)
	beating.Go(func() {
		ticker := time.NewTicker(Heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := beat(ctx, client); err != nil {
				cancel(err)
				return
			}
		}
	})
	return f(ctx)
}

// beat asks who leads. That needs no token.
func beat(ctx context.Context, client *api.Client) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	leader, err := client.Status().LeaderWithQueryOptions((&api.QueryOptions{}).WithContext(ctx))
	var status api.StatusError
	switch {
	case errors.As(err, &status) && status.Code < 500:
		return nil // closed to us, but somebody is there
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("ask who leads: nothing came within %s; is it there, and does the network let packets through?", heartbeatTimeout)
	case err != nil:
		return fmt.Errorf("ask who leads: %w", err)
	case leader == "":
		return ErrNoLeader
	}
	return nil
}
