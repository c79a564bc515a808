package component

import (
	"context"
	"log/slog"
	"time"

	"github.com/dapr/kit/logger"
)

// Logger returns a slog.Logger that writes to one of Dapr's. So lines have the format, level and
// destination that the user has set for Dapr.
func Logger(l logger.Logger) *slog.Logger { return slog.New(&handler{dapr: l}) }

// handler is a slog.Handler on a Dapr logger. It is immutable.
type handler struct {
	dapr   logger.Logger
	prefix string // of the open groups, with a dot at the end
}

func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return h.dapr.IsOutputLevelEnabled(daprLevel(level))
}

func (h *handler) Handle(_ context.Context, record slog.Record) error {
	fields := make(map[string]any, record.NumAttrs())
	record.Attrs(func(a slog.Attr) bool {
		h.add(fields, h.prefix, a)
		return true
	})
	to := h.dapr
	if len(fields) > 0 {
		to = to.WithFields(fields)
	}
	switch daprLevel(record.Level) {
	case logger.DebugLevel:
		to.Debug(record.Message)
	case logger.InfoLevel:
		to.Info(record.Message)
	case logger.WarnLevel:
		to.Warn(record.Message)
	default:
		to.Error(record.Message)
	}
	return nil
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	fields := make(map[string]any, len(attrs))
	for _, a := range attrs {
		h.add(fields, h.prefix, a)
	}
	return &handler{dapr: h.dapr.WithFields(fields), prefix: h.prefix}
}

func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &handler{dapr: h.dapr, prefix: h.prefix + name + "."}
}

func (h *handler) add(fields map[string]any, prefix string, a slog.Attr) {
	a.Value = a.Value.Resolve()
	switch {
	case a.Equal(slog.Attr{}):
	case a.Value.Kind() == slog.KindGroup:
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, member := range a.Value.Group() {
			h.add(fields, prefix, member)
		}
	default:
		fields[fieldName(prefix+a.Key)] = fieldValue(a.Value)
	}
}

// fieldName avoids the field names of Dapr's log schema, as logrus does for its own.
func fieldName(key string) string {
	switch key {
	case "time", "level", "type", "scope", "msg", "instance", "ver", "app_id", "component":
		return "fields." + key
	}
	return key
}

// fieldValue returns a value that reads the same in Dapr's text and JSON formats.
func fieldValue(v slog.Value) any {
	switch x := v.Any().(type) {
	case error:
		return x.Error()
	case time.Duration:
		return x.String()
	case interface{ String() string }:
		return x.String()
	default:
		return x
	}
}

func daprLevel(level slog.Level) logger.LogLevel {
	switch {
	case level < slog.LevelInfo:
		return logger.DebugLevel
	case level < slog.LevelWarn:
		return logger.InfoLevel
	case level < slog.LevelError:
		return logger.WarnLevel
	default:
		return logger.ErrorLevel
	}
}
