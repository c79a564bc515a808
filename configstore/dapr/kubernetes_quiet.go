//go:build clouds || stablecomponents || allcomponents

package dapr

import (
	"context"
	"log/slog"
	"sync"

	"k8s.io/klog/v2"
)

var quietKubernetesOnce sync.Once

// quietKubernetes makes debug lines of what the client of Kubernetes logs: each failed try.
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
