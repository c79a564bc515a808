package dapr

import (
	"context"
	"errors"
	"fmt"
)

// listen subscribes to the head. As Dapr's store does, it first asks the server to tell of changes,
// which it may be allowed to.
func (r *redisEngine) listen(ctx context.Context, to hints) error {
	_, _ = r.do(ctx, "CONFIG", "SET", "notify-keyspace-events", "Kg$xe")
	to.begin()
	all := r.client.Subscribe(ctx, fmt.Sprintf("__keyspace@%d__:%s", r.db, r.names.key(headPath)))
	defer all.Close()
	for {
		select {
		case _, ok := <-all.Channel():
			if !ok {
				return errors.New("the subscription has ended")
			}
			to.add()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
