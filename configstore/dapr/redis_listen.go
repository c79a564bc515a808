package dapr

import (
	"context"
	"errors"
	"fmt"
	"strings"

	redis8 "github.com/go-redis/redis/v8"
	redis9 "github.com/redis/go-redis/v9"

	contrib "github.com/dapr/components-contrib/common/component/redis"
	"github.com/dapr/components-contrib/configuration"
)

// listen subscribes to the head by the method of Dapr's client that Subscribe of Dapr's
// store is made of. That store itself (1.18.1) can't be closed safely: it closes its
// client before it waits for its subscriptions, and one of them that has not seen the end
// of its context by then reads from a nil message and ends the process. Here the client is
// closed after its subscriptions; and should it ever be closed under one, as Dapr's code
// does when it can't renew a token of Entra, this goroutine is the one to see.
func (r *redisEngine) listen(ctx context.Context, to hints) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("the client of Redis was closed: %v", why)
		}
	}()
	to.begin()
	r.client.ConfigurationSubscribe(ctx, &contrib.ConfigurationSubscribeArgs{
		RedisChannel: fmt.Sprintf("__keyspace@%d__:%s", r.db, r.names.key(headPath)),
		HandleSubscribedChange: func(context.Context, *configuration.SubscribeRequest, configuration.UpdateHandler, string, string) {
			to.add()
		},
	})
	return errors.New("the subscription has ended")
}

// spent tells whether the client is of no more use: Dapr's code closes it when it can't
// renew a token of Entra, and gives the new one to a single connection otherwise.
func (r *redisEngine) spent(err error) bool {
	entra := r.component.property("useEntraID", "useAzureAD")
	return errors.Is(err, redis8.ErrClosed) || errors.Is(err, redis9.ErrClosed) ||
		strings.EqualFold(entra, "true") && isDenied(err)
}
