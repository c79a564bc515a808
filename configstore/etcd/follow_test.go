package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// patience is only used up when a test fails.
const patience = time.Minute

func cluster(name, network string) *catalog.Cluster {
	return &catalog.Cluster{Name: name, Network: network, StaleAfter: catalog.DefaultStaleAfter}
}

func clusterKey(name string) catalog.Key { return catalog.Key{Kind: catalog.KindCluster, Name: name} }

// followed is a Follower at work, and what it has.
type followed struct {
	*configstore.Follower
	mu  sync.Mutex
	set configstore.Set
}

// follow runs a Follower until the test ends.
func follow(t testing.TB, s configstore.Store) *followed {
	t.Helper()
	f := &followed{}
	f.Follower = configstore.NewFollower(s, func(c configstore.Change) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.set.Apply(c)
		return nil
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { _ = f.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wait.Wait()
	})
	return f
}

// has is the Clusters that there are, as name=network.
func (f *followed) has() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, s := range f.set.All() {
		if c, ok := s.Object.(*catalog.Cluster); ok {
			all = append(all, c.Name+"="+c.Network)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (f *followed) await(t testing.TB, want string) {
	t.Helper()
	eventually(t, func() error {
		if got := f.has(); got != want {
			status, _ := f.Status().Load()
			return fmt.Errorf("the reader has %q, want %q; status %+v", got, want, status)
		}
		return nil
	})
}

// eventually tries until it works.
func eventually(t testing.TB, try func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func put(t testing.TB, s configstore.Writer, o catalog.Object) {
	t.Helper()
	if _, err := s.Write(t.Context(), configstore.Write{Object: o}); err != nil {
		t.Fatal(err)
	}
}

func closing(t testing.TB, s *Store) *Store {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
