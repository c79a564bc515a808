package servers

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

func TestEtcdKeepsWhatItWasGivenThroughAKill(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	m, err := StartEtcd(ctx, t.TempDir(), EtcdOptions{})
	programstest.OrSkip(t, err)
	defer func() { _ = m.Kill() }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.URL()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Put(ctx, "key", "value"); err != nil {
		t.Fatal(err)
	}
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := m.Start(ctx); err != nil {
		t.Fatal(err)
	}
	has := func(want string) {
		t.Helper()
		got, err := client.Get(ctx, "key")
		if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != want {
			t.Errorf("after a kill: %v, %v; want the value %q", got, err, want)
		}
	}
	has("value")

	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	elsewhere, err := m.Elsewhere(ctx)
	if err != nil {
		t.Fatal(err)
	}
	other, err := clientv3.New(clientv3.Config{Endpoints: []string{elsewhere.URL()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Put(ctx, "key", "written elsewhere"); err != nil {
		t.Error(err)
	}
	if err := elsewhere.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := m.Start(ctx); err != nil {
		t.Fatal(err)
	}
	has("written elsewhere")
}
