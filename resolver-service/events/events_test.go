package events

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func text(all []Event) string {
	var lines []string
	for _, e := range all {
		line := fmt.Sprintf("%s %s x%d", e.Level, e.Message, e.Count)
		for _, f := range e.Fields {
			line += " " + f.Name + "=" + f.Value
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestTheRingKeepsWhatTheLogHas(t *testing.T) {
	var out bytes.Buffer
	r := New()
	log := r.Tee(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))).With("cluster", "west")
	log.Debug("not kept")
	log.Info("kept", "n", 1)
	log.WithGroup("store").Warn("kept and logged", "err", fmt.Errorf("no"))
	r.Logger().Info("kept alone", "app", "shop/orders")
	want := "INFO kept x1 cluster=west n=1\nWARN kept and logged x1 cluster=west store.err=no\nINFO kept alone x1 app=shop/orders"
	if got := text(r.After(0, time.Time{})); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `msg="kept and logged" cluster=west store.err=no`) {
		t.Errorf("logged %s", got)
	}
	if got := text(r.After(2, time.Time{})); got != "INFO kept alone x1 app=shop/orders" {
		t.Errorf("after the second: %s", got)
	}
	if got := text(r.After(0, time.Now().Add(time.Hour))); got != "" {
		t.Errorf("of the future: %s", got)
	}
}

func TestTheSameAgainIsOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		log := r.Logger()
		for range 3 {
			log.Info("sidecar connected", "app", "shop/orders")
			log.Info("sidecar connected", "app", "shop/checkout")
			time.Sleep(time.Second)
		}
		all := r.After(0, time.Time{})
		if got := text(all); got != "INFO sidecar connected x3 app=shop/orders\nINFO sidecar connected x3 app=shop/checkout" {
			t.Errorf("got\n%s", got)
		}
		if d := all[0].Last.Sub(all[0].First); d != 2*time.Second || all[0].Number != 5 || all[1].Number != 6 {
			t.Errorf("%+v", all)
		}
		time.Sleep(sameWithin)
		log.Info("sidecar connected", "app", "shop/orders")
		if n := len(r.After(0, time.Time{})); n != 3 {
			t.Errorf("%d events; one that is long after is another", n)
		}
	})
}

func TestTheRingIsBounded(t *testing.T) {
	r := New()
	log := r.Logger()
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range most {
				log.Info("x", "writer", w, "i", i, "long", strings.Repeat("y", maxText), "left", "out")
			}
		})
	}
	writers.Wait()
	all := r.After(0, time.Time{})
	if len(all) > most || len(all) < most*9/10 {
		t.Errorf("%d events, want at most %d and not much less", len(all), most)
	}
	for i, e := range all {
		size := len(e.Message)
		for _, f := range e.Fields {
			size += len(f.Name) + len(f.Value)
		}
		if size > maxText+maxText/2 || i > 0 && e.Number <= all[i-1].Number {
			t.Fatalf("event %d: %d bytes, number %d", i, size, e.Number)
		}
	}
	if n, ok := r.Latest().Load(); !ok || n != 4*most {
		t.Errorf("the latest is %d", n)
	}
}

// Sidecars that come and go by thousands, or by one host's many addresses, push out nothing else.
func TestAFloodOfOneKindLeavesTheOthers(t *testing.T) {
	r := New()
	r.Logger().Info("objects written", "by", "ops/anna")
	for i := range 3 * most {
		r.Logger().Info("sidecar connected", "from", fmt.Sprint("2001:db8::", i))
		r.Logger().Info("sidecar left", "from", fmt.Sprint("2001:db8::", i))
	}
	all := r.After(0, time.Time{})
	if len(all) > most || all[0].Message != "objects written" {
		t.Errorf("%d events, the oldest is %q", len(all), all[0].Message)
	}
	if last := all[len(all)-1]; last.Message != "sidecar left" || last.Fields[0].Value != fmt.Sprint("2001:db8::", 3*most-1) {
		t.Errorf("the newest is %+v", last)
	}
	if !slices.IsSortedFunc(all, func(a, b Event) int { return cmp.Compare(a.Number, b.Number) }) {
		t.Error("they are out of order")
	}
}
