package dapr

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Printf takes what the client of Redis would write to standard error: each failed connection,
// which our own errors tell anyway.
func (b *daprLogger) Printf(_ context.Context, format string, args ...any) { b.Infof(format, args...) }

var redisLogOnce sync.Once

// redirectRedisLog gives the client of Redis a logger. It has one for the whole process, so
// the first store's is that of all.
func redirectRedisLog(log *daprLogger) { redisLogOnce.Do(func() { redis.SetLogger(log) }) }
