//go:build clouds || stablecomponents || allcomponents

package dapr

import (
	"context"
	"log/slog"
	"sync"

	"k8s.io/klog/v2"
)

var kubernetesLogOnce sync.Once

// redirectKubernetesLog makes debug lines of what the client of Kubernetes logs: each failed try.
func redirectKubernetesLog(log *slog.Logger) {
	kubernetesLogOnce.Do(func() { klog.SetSlogLogger(slog.New(debugHandler{log.Handler()})) })
}

// debugHandler is a handler by which everything is of debug level.
type debugHandler struct{ slog.Handler }

// Enabled is whether debug lines are wanted.
func (d debugHandler) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle hands the line on.
func (d debugHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return d.Handler.Handle(ctx, r)
}

// WithAttrs keeps the level.
func (d debugHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugHandler{d.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the level.
func (d debugHandler) WithGroup(name string) slog.Handler {
	return debugHandler{d.Handler.WithGroup(name)}
}
