package embedded

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func BenchmarkStartWith10000(b *testing.B) {
	path := filepath.Join(b.TempDir(), "isthmus.db")
	s := open(b, path)
	for i := range 10 {
		var writes []configstore.Write
		for j := range 1000 {
			o := &catalog.AppEndpoints{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", 1000*i+j)}}
			for k := range 20 {
				o.Endpoints = append(o.Endpoints, catalog.Endpoint{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", 10_001+(i+j*37+k)%10_000)}})
			}
			writes = append(writes, configstore.Write{Object: o})
		}
		if _, err := s.Write(b.Context(), writes...); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	stop := errors.New("enough")
	for b.Loop() {
		s := open(b, path)
		err := s.Watch(b.Context(), "", func(c configstore.Change) error {
			if len(c.Objects) != 10_000 {
				b.Fatalf("%d objects", len(c.Objects))
			}
			return stop
		})
		if !errors.Is(err, stop) {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWriteToDeliver(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "isthmus.db"))
	defer s.Close()
	fill(b, s, 10_000)
	storeBench(b, s)
}

func storeBench(b *testing.B, s *Store) {
	got := make(chan string, 1)
	stop := errors.New("enough")
	done := make(chan error, 1)
	go func() {
		done <- s.Watch(b.Context(), "", func(c configstore.Change) error {
			if c.Full {
				got <- ""
				return nil
			}
			network := c.Objects[0].Object.(*catalog.Cluster).Network
			got <- network
			if network == "end" {
				return stop
			}
			return nil
		})
	}()
	<-got
	write := func(network string) {
		if _, err := s.Write(b.Context(), configstore.Write{Object: &catalog.Cluster{Name: "east", Network: network, StaleAfter: catalog.DefaultStaleAfter}}); err != nil {
			b.Fatal(err)
		}
		if seen := <-got; seen != network {
			b.Fatalf("delivered %s, want %s", seen, network)
		}
	}
	i := 0
	for b.Loop() {
		write(fmt.Sprint(i))
		i++
	}
	write("end")
	if err := <-done; !errors.Is(err, stop) {
		b.Fatal(err)
	}
}
