package servers

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/isthmus-mesh/isthmus/sandbox"
)

func TestEtcdKeepsWhatItWasGivenThroughAKill(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := StartEtcd(ctx, t.TempDir(), EtcdOptions{})
	if errors.Is(err, sandbox.ErrNoBinary) && testing.Short() {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
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
	got, err := client.Get(ctx, "key")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" {
		t.Errorf("after a kill: %v, %v; want the value", got, err)
	}
}
