package throttle_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/throttle"
)

func lines(b *bytes.Buffer) int { return strings.Count(b.String(), "\n") }

func TestOneLineForAKeyInTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := throttle.New(slog.New(slog.NewTextHandler(&out, nil)), time.Second)
		for range 1000 {
			log.Warn("a", "refused", "app", "shop/a")
			log.Info("b", "refused", "app", "shop/b")
		}
		if n := lines(&out); n != 2 {
			t.Fatalf("%d lines for two keys:\n%s", n, &out)
		}
		out.Reset()
		time.Sleep(time.Second)
		log.Warn("a", "refused", "app", "shop/a")
		if got := out.String(); !strings.Contains(got, "app=shop/a suppressed=999") {
			t.Errorf("the next line says nothing of what was left out: %s", got)
		}
		out.Reset()
		time.Sleep(time.Second)
		log.Warn("a", "refused")
		if got := out.String(); strings.Contains(got, "suppressed") || lines(&out) != 1 {
			t.Errorf("nothing was left out, and the line is: %s", got)
		}
	})
}

func TestABurstForAKeyInTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := throttle.NewBurst(slog.New(slog.NewTextHandler(&out, nil)), time.Minute, 6)
		for range 10 {
			log.Warn("east", "unreachable")
		}
		if n := lines(&out); n != 6 {
			t.Fatalf("%d lines, want a burst of 6:\n%s", n, &out)
		}
		time.Sleep(time.Minute)
		out.Reset()
		log.Info("east", "back")
		if got := out.String(); !strings.Contains(got, "suppressed=4") {
			t.Errorf("the next line says nothing of what was left out: %s", got)
		}
	})
}

func TestEndlessKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := throttle.New(slog.New(slog.NewTextHandler(&out, nil)), time.Minute)
		for i := range 100_000 {
			log.Warn(fmt.Sprint(i), "refused")
		}
		if n := lines(&out); n > 1001 {
			t.Errorf("%d lines for 100,000 keys", n)
		}
		out.Reset()
		time.Sleep(time.Minute)
		log.Warn("another", "refused")
		log.Warn("one more", "refused")
		if n := lines(&out); n != 2 {
			t.Errorf("%d lines for two new keys after the interval", n)
		}
	})
}
