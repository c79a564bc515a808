package dapr

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	redis8 "github.com/go-redis/redis/v8"
	redis9 "github.com/redis/go-redis/v9"
)

// redisLog takes what the clients of Redis would write to standard error: each failed
// connection, which our own errors tell anyway.
type redisLog struct {
	log   *slog.Logger
	scrub *scrubber
}

// Printf is that of the clients' loggers.
func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.log.Debug(l.scrub.text(fmt.Sprintf(format, args...)))
}

var redisLogOnce sync.Once

// redirectRedisLog gives the clients of Redis a logger. They have one for the whole process, so
// the first store's is that of all.
func redirectRedisLog(log *slog.Logger, scrub *scrubber) {
	redisLogOnce.Do(func() {
		l := redisLog{log, scrub}
		redis8.SetLogger(l)
		redis9.SetLogger(l)
	})
}
