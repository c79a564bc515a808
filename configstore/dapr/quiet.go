package dapr

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	redis8 "github.com/go-redis/redis/v8"
	redis9 "github.com/redis/go-redis/v9"
	"k8s.io/klog/v2"
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

var quietRedisOnce sync.Once

// quietRedis gives the clients of Redis a logger. They have one for the whole process, so
// the first store's is that of all.
func quietRedis(log *slog.Logger, scrub *scrubber) {
	quietRedisOnce.Do(func() {
		l := redisLog{log, scrub}
		redis8.SetLogger(l)
		redis9.SetLogger(l)
	})
}

var quietKubernetesOnce sync.Once

// quietKubernetes does the same for the client of Kubernetes, which tells each failed try.
func quietKubernetes(log *slog.Logger) {
	quietKubernetesOnce.Do(func() { klog.SetSlogLogger(slog.New(demoted{log.Handler()})) })
}

// demoted is a handler by which everything is of debug level.
type demoted struct{ slog.Handler }

// Enabled is whether debug lines are wanted.
func (d demoted) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle hands the line on.
func (d demoted) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return d.Handler.Handle(ctx, r)
}

// WithAttrs keeps the level.
func (d demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoted{d.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the level.
func (d demoted) WithGroup(name string) slog.Handler { return demoted{d.Handler.WithGroup(name)} }
