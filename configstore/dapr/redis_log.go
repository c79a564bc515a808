package dapr

import (
	"context"
	"sync"

	redis8 "github.com/go-redis/redis/v8"
	redis9 "github.com/redis/go-redis/v9"
)

// Printf takes what the clients of Redis would write to standard error: each failed connection,
// which our own errors tell anyway.
func (b *daprLogger) Printf(_ context.Context, format string, args ...any) { b.Infof(format, args...) }

var redisLogOnce sync.Once

// redirectRedisLog gives the clients of Redis a logger. They have one for the whole process, so
// the first store's is that of all.
func redirectRedisLog(log *daprLogger) {
	redisLogOnce.Do(func() {
		redis8.SetLogger(log)
		redis9.SetLogger(log)
	})
}
