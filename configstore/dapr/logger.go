package dapr

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/dapr/kit/logger"
)

// daprLogger is a logger of Dapr whose lines go to slog, without secrets and at debug level:
// what matters is told by errors. An error that Dapr's code logs is often the only sign
// that a subscription has ended, so failed is told of it; nil tells nobody.
type daprLogger struct {
	log    *slog.Logger
	scrub  *scrubber
	failed func(text string)
}

var _ logger.Logger = (*daprLogger)(nil)

func (b *daprLogger) say(level, text string) {
	text = strings.TrimSpace(b.scrub.text(text))
	b.log.LogAttrs(context.Background(), slog.LevelDebug, "dapr: "+text, slog.String("daprLevel", level))
	if (level == "error" || level == "fatal") && b.failed != nil {
		b.failed(text)
	}
}

// EnableJSONOutput is of no use here: slog's handler decides.
func (b *daprLogger) EnableJSONOutput(bool) {}

// SetAppID is of no use here.
func (b *daprLogger) SetAppID(string) {}

// SetOutputLevel is of no use here: slog's handler decides.
func (b *daprLogger) SetOutputLevel(logger.LogLevel) {}

// SetOutput is of no use here: slog's handler decides.
func (b *daprLogger) SetOutput(io.Writer) {}

// IsOutputLevelEnabled is whether debug lines are wanted, which all of these are.
func (b *daprLogger) IsOutputLevelEnabled(logger.LogLevel) bool {
	return b.log.Enabled(context.Background(), slog.LevelDebug)
}

// WithLogType returns the logger itself.
func (b *daprLogger) WithLogType(string) logger.Logger { return b }

// WithFields returns the logger itself: fields may hold secrets.
func (b *daprLogger) WithFields(map[string]any) logger.Logger { return b }

// Info is that of Dapr's logger.
func (b *daprLogger) Info(args ...any) { b.say("info", fmt.Sprint(args...)) }

// Infof is that of Dapr's logger.
func (b *daprLogger) Infof(format string, args ...any) { b.say("info", fmt.Sprintf(format, args...)) }

// Debug is that of Dapr's logger.
func (b *daprLogger) Debug(args ...any) { b.say("debug", fmt.Sprint(args...)) }

// Debugf is that of Dapr's logger.
func (b *daprLogger) Debugf(format string, args ...any) { b.say("debug", fmt.Sprintf(format, args...)) }

// Warn is that of Dapr's logger.
func (b *daprLogger) Warn(args ...any) { b.say("warn", fmt.Sprint(args...)) }

// Warnf is that of Dapr's logger.
func (b *daprLogger) Warnf(format string, args ...any) { b.say("warn", fmt.Sprintf(format, args...)) }

// Error is that of Dapr's logger.
func (b *daprLogger) Error(args ...any) { b.say("error", fmt.Sprint(args...)) }

// Errorf is that of Dapr's logger.
func (b *daprLogger) Errorf(format string, args ...any) { b.say("error", fmt.Sprintf(format, args...)) }

// Fatal ends nothing: a component that fails must not end the process.
func (b *daprLogger) Fatal(args ...any) { b.say("fatal", fmt.Sprint(args...)) }

// Fatalf ends nothing, as Fatal.
func (b *daprLogger) Fatalf(format string, args ...any) { b.say("fatal", fmt.Sprintf(format, args...)) }
