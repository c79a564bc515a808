package consulapi

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// TestWhatCanNotBeKeptIsSaid in the status, for as long as it is so, and mends itself.
func TestWhatCanNotBeKeptIsSaid(t *testing.T) {
	place, token := filepath.Join(t.TempDir(), "consul"), secret(t, "o-token-1")
	if err := os.WriteFile(place, nil, 0o600); err != nil { // where the directory would be
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := lone(nil, place)
		s := &Server{
			registry: r, log: slog.New(slog.DiscardHandler), callers: map[catalog.App]*caller{shop("orders"): {}},
			cfg: Config{Settings: Settings{Tokens: []Token{{"shop/orders", token}}}},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- r.run(ctx) }()
		go func() { s.followTokens(ctx); done <- nil }()
		said := func() (all string) {
			for _, refused := range s.Status().GetRefused() {
				all += refused.GetSource() + ": " + refused.GetError() + "\n"
			}
			return all
		}
		if err := r.register(ctx, shop("orders"), &api.AgentServiceRegistration{ID: "a", Name: "orders", Port: 1}, netip.MustParseAddr("10.0.0.1")); err != nil {
			t.Fatal(err)
		}
		if got := said(); !strings.Contains(got, `service "a" of shop/orders: it can't be saved`) || !strings.Contains(got, "make room in "+place) {
			t.Errorf("status: %q", got)
		}
		r.mu.Lock() // as while a disk hangs
		if n := s.Instances(); n != 1 || said() == "" {
			t.Errorf("%d instances, status %q, while something is being saved", n, said())
		}
		r.mu.Unlock()
		text, err := os.ReadFile(token.File)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(token.File); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reread + time.Second)
		if got := said(); !strings.Contains(got, "tokens: they can't be read again; those of before hold: consul.tokens[0].token of shop/orders") || !strings.Contains(got, "can't be saved") {
			t.Errorf("status: %q", got)
		}
		if err := os.WriteFile(token.File, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(place); err != nil {
			t.Fatal(err)
		}
		time.Sleep(max(reread, saveAgain) + time.Second)
		if got := said(); got != "" {
			t.Errorf("all is well, and the status says %q", got)
		}
		if all := r.store.load(r.log); len(all) != 1 || all[0].Service.ID != "a" {
			t.Errorf("%d services are kept", len(all))
		}
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestANewOutputIsShownAndNotSaved: the disk is for how a check stands.
func TestANewOutputIsShownAndNotSaved(t *testing.T) {
	r := lone(nil, t.TempDir())
	d := &api.AgentServiceRegistration{ID: "a", Name: "orders", Port: 1, Check: &api.AgentServiceCheck{CheckID: "c", TTL: "1h"}}
	if err := r.register(t.Context(), shop("orders"), d, netip.MustParseAddr("10.0.0.1")); err != nil {
		t.Fatal(err)
	}
	o := r.own(shop("orders"))
	if err := r.update(t.Context(), o.app, "c", passing, "2"); err != nil {
		t.Fatal(err)
	}
	kept, err := os.Stat(r.store.path(shop("orders"), "a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, output := range []string{"3", "4"} {
		if err := r.update(t.Context(), o.app, "c", passing, output); err != nil {
			t.Fatal(err)
		}
		if all, _ := o.roster.Load(); all.services[0].checks[1].Output != output {
			t.Errorf("shown is %q, want %q", all.services[0].checks[1].Output, output)
		}
	}
	if now, err := os.Stat(r.store.path(shop("orders"), "a")); err != nil || !os.SameFile(kept, now) || !kept.ModTime().Equal(now.ModTime()) {
		t.Errorf("written again: %v %v", now, err)
	}
	if err := r.update(t.Context(), o.app, "c", critical, "5"); err != nil {
		t.Fatal(err)
	}
	if all := r.store.load(r.log); len(all) != 1 || all[0].Checks[0].Shown.Status != critical || all[0].Checks[0].Shown.Output != "5" {
		t.Errorf("kept: %+v", all)
	}
}
