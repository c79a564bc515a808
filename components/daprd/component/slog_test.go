package component

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/dapr/kit/logger"
)

// daprLogger is a Dapr logger that writes JSON into out.
func daprLogger(t *testing.T, out *bytes.Buffer) logger.Logger {
	t.Helper()
	l := logger.NewLogger(t.Name())
	l.EnableJSONOutput(true)
	l.SetOutput(out)
	return l
}

func TestLogLinesKeepDaprsSchema(t *testing.T) {
	schema := []string{"time", "level", "type", "scope", "msg", "instance", "ver"}
	for what, tc := range map[string]struct {
		log  func(*slog.Logger)
		want map[string]any // beside the schema
	}{
		"a message": {func(l *slog.Logger) { l.Info("m") }, map[string]any{"level": "info"}},
		"values": {
			func(l *slog.Logger) { l.Warn("m", "err", errors.New("e"), "age", 2*time.Second, "revision", 7) },
			map[string]any{"level": "warning", "err": "e", "age": "2s", "revision": 7.0},
		},
		"fields kept": {
			func(l *slog.Logger) { l.With("app", "shop/orders").Error("m", "peer", "east") },
			map[string]any{"level": "error", "app": "shop/orders", "peer": "east"},
		},
		"groups": {
			func(l *slog.Logger) { l.WithGroup("a").With("b", 1).Info("m", slog.Group("c", "d", 2)) },
			map[string]any{"level": "info", "a.b": 1.0, "a.c.d": 2.0},
		},
		"a name that Dapr's schema has": {
			func(l *slog.Logger) { l.Info("m", "instance", "10.0.0.1:50002") },
			map[string]any{"level": "info", "fields.instance": "10.0.0.1:50002"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			var out bytes.Buffer
			tc.log(Logger(daprLogger(t, &out)))
			var line map[string]any
			if err := json.Unmarshal(out.Bytes(), &line); err != nil {
				t.Fatalf("%q: %v", out.String(), err)
			}
			for key, want := range tc.want {
				if line[key] != want {
					t.Errorf("%s is %v, want %v", key, line[key], want)
				}
			}
			for _, key := range slices.Sorted(maps.Keys(line)) {
				if _, ok := tc.want[key]; !ok && !slices.Contains(schema, key) {
					t.Errorf("unexpected field %s in %s", key, out.String())
				}
			}
		})
	}
}

func TestLogLevelIsDaprs(t *testing.T) {
	var out bytes.Buffer
	dapr := daprLogger(t, &out)
	log := Logger(dapr).With("app", "shop/orders")
	dapr.SetOutputLevel(logger.WarnLevel)
	log.Info("not to be seen")
	if out.Len() != 0 {
		t.Errorf("logged below Dapr's level: %s", out.String())
	}
	dapr.SetOutputLevel(logger.DebugLevel)
	log.Debug("to be seen")
	if out.Len() == 0 {
		t.Error("nothing logged at Dapr's level")
	}
}
