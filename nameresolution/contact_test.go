package nameresolution

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	noView    = "no view yet: lookups end with not ready until it arrives"
	notAnyNew = "the view is not being updated; lookups use the last one"
)

func TestTheLogSaysOnceWhyThereIsNoView(t *testing.T) {
	refused := errors.New("connection refused")
	for what, test := range map[string]struct {
		happens func(*contact)
		want    []string
	}{
		"attempts fail":              {func(c *contact) { c.lose(refused); c.missing(); c.lose(refused) }, []string{noView}},
		"nothing has failed yet":     {func(c *contact) { c.missing() }, []string{noView}},
		"an attempt fails late":      {func(c *contact) { c.missing(); c.lose(refused); c.lose(refused) }, []string{noView, noView}},
		"the service says nothing":   {func(c *contact) { c.reach("resolver service a:1"); c.missing() }, []string{noView}},
		"there is no certificate":    {func(c *contact) { c.blind = func() error { return refused }; c.missing() }, []string{noView}},
		"it comes in time":           {func(c *contact) { c.gain("a:1"); c.missing() }, nil},
		"it comes and is lost":       {func(c *contact) { c.gain("a:1"); c.lose(refused) }, []string{notAnyNew}},
		"one of before was kept":     {func(c *contact) { c.old(time.Hour); c.missing(); c.lose(refused) }, []string{notAnyNew}},
		"it is lost twice":           {func(c *contact) { c.gain("a:1"); c.lose(refused); c.gain("a:1"); c.lose(refused) }, []string{notAnyNew, notAnyNew}},
		"it comes after a long time": {func(c *contact) { c.missing(); c.gain("a:1"); c.missing() }, []string{noView}},
	} {
		var log bytes.Buffer
		c := newContact(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})), "resolver service a:1")
		test.happens(c)
		var got []string
		for line := range strings.Lines(log.String()) {
			message, _, _ := strings.Cut(strings.SplitAfter(line, "msg=\"")[1], "\"")
			got = append(got, message)
			if !strings.Contains(line, `from="resolver service a:1" err=`) {
				t.Errorf("%s: %s lacks the source and the cause", what, line)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: the log has %q, want %q", what, got, test.want)
		}
	}
}
