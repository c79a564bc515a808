package stream_test

import (
	"slices"
	"strings"
	"testing"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

func TestOperatorsSeeTheSidecars(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	anyApp := func(catalog.App) bool { return true }
	if all := s.server.Sidecars(anyApp); len(all) != 0 {
		t.Fatalf("%v; want nobody", all)
	}
	ready := helloOf(orders, "10.0.0.1:50002")
	ready.GetHello().Version, ready.GetHello().Runtime, ready.GetHello().Instance.Zone = "v1.2.3\n", "daprd 1.18.0"+strings.Repeat("x", 100), "a"
	o := s.dial().send(ready)
	view := o.until(func(m *pb.WatchResponse) bool { return m.Revision > 0 })
	s.dial().send(helloOf(checkout, "")).until(func(m *pb.WatchResponse) bool { return m.Revision > 0 })

	all := s.server.Sidecars(anyApp)
	if len(all) != 2 {
		t.Fatalf("%d sidecars, want 2", len(all))
	}
	waits, runs := all[0], all[1]
	if waits.App != checkout || waits.State != stream.Waiting || waits.Address.IsValid() || !waits.Source.IsValid() {
		t.Errorf("%+v; want checkout, which waits for its app", waits)
	}
	if runs.App != orders || runs.State != stream.Ready || runs.Address.String() != "10.0.0.1:50002" || runs.Zone != "a" || runs.Identity != "" ||
		strings.Contains(runs.Version, "\n") || len(runs.Runtime) != 64 || runs.Since.IsZero() {
		t.Errorf("%+v; want orders", runs)
	}
	serverstest.Await(t, "the newest view is delivered", func() bool {
		now := s.server.Sidecars(func(a catalog.App) bool { return a == orders })
		return len(now) == 1 && now[0].Delivered && now[0].Revision >= view.Revision && now[0].Revision == now[0].Newest
	})
	o.send(drainRequest()).until(func(m *pb.WatchResponse) bool { return m.Drained })
	if now := s.server.Sidecars(func(a catalog.App) bool { return a == orders }); len(now) != 1 || now[0].State != stream.Draining {
		t.Errorf("%+v; want one that drains", now)
	}
	o.close()
	serverstest.Await(t, "a sidecar that has gone is listed no more", func() bool { return len(s.server.Sidecars(anyApp)) == 1 })
}

func TestSidecarsComeInPages(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	anyApp := func(catalog.App) bool { return true }
	clients := []*sidecar{}
	for _, instance := range []string{"10.0.0.3:1", "", "10.0.0.1:1", "", "10.0.0.2:1"} {
		clients = append(clients, s.dial().send(helloOf(orders, instance)))
	}
	clients = append(clients, s.dial().send(helloOf(checkout, "10.0.0.9:1")))
	for _, c := range clients {
		c.until(func(m *pb.WatchResponse) bool { return m.Revision > 0 })
	}
	whole := s.server.Sidecars(anyApp)
	page := func(after string, most int) []stream.Sidecar {
		t.Helper()
		some, matched, err := s.server.SidecarPage(anyApp, after, most)
		if err != nil || matched != len(whole) {
			t.Errorf("%d of %d matched (%v)", matched, len(whole), err)
		}
		return some
	}
	for _, most := range []int{0, 1, 2, 4, 100} {
		var got []string
		for after := ""; ; {
			some := page(after, most)
			for i := range some {
				got = append(got, some[i].Position)
				after = some[i].Position
			}
			if len(some) == 0 || most == 0 {
				break
			}
			if len(some) > most {
				t.Errorf("a page of %d, want %d at most", len(some), most)
			}
		}
		var want []string
		for i := range whole {
			want = append(want, whole[i].Position)
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: got %q, want %q", most, got, want)
		}
	}
	clients[2].close() // orders at 10.0.0.1, fourth of all
	serverstest.Await(t, "it has gone", func() bool { return len(s.server.Sidecars(anyApp)) == 5 })
	gone, left := whole[3].Position, whole[4].Position
	whole = s.server.Sidecars(anyApp)
	if some := page(gone, 1); len(some) != 1 || some[0].Position != left {
		t.Errorf("after one that has gone: %+v, want %q", some, left)
	}
	if _, matched, err := s.server.SidecarPage(func(a catalog.App) bool { return a == checkout }, whole[0].Position, 5); err != nil || matched != 1 {
		t.Errorf("of checkout %d (%v), want 1", matched, err)
	}
	if _, _, err := s.server.SidecarPage(anyApp, "nowhere", 1); err == nil {
		t.Error("a position that is none was taken")
	}
}
