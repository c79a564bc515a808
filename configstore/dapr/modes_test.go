package dapr

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// trusted is the authority among the system's roots of this process; see TestMain.
var trusted struct{ cert, key string }

func TestRedisByTLSOfASystemsRoot(t *testing.T) {
	server := serverstest.Start(t, servers.StartRedis, servers.RedisOptions{Cert: trusted.cert, Key: trusted.key})
	s := opened(t, told(yamlOf(t, kindRedis, map[string]string{"redisHost": server.Addr(), "enableTLS": "true"}), ""))
	got := storetest.Watch(t, s, "")
	got.AwaitClusters("")
	subscribed()
	storetest.Put(t, s, cluster("east", "a"))
	got.AwaitClusters("east=a")
}

func TestPostgresByTLSOfAnAuthority(t *testing.T) {
	p := startPostgres(t)
	database := p.newDatabase(t)
	settings := p.settings(database, writerUser, postgresPassword)
	u, err := url.Parse(settings["connectionString"])
	if err != nil {
		t.Fatal(err)
	}
	u.RawQuery = "sslmode=verify-full"
	settings["connectionString"], settings["sslRootCert"] = u.String(), p.ca
	s := opened(t, told(yamlOf(t, kindPostgres, settings), ""))
	got := storetest.Watch(t, s, "")
	got.AwaitClusters("")
	subscribed()
	storetest.Put(t, s, cluster("east", "a"))
	got.AwaitClusters("east=a")
}

func TestRedisCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	var server *servers.Redis
	var err error
	for range 5 { // it needs the port 10,000 above its own as well, which somebody may have
		server, err = servers.StartRedis(ctx, t.TempDir(), servers.RedisOptions{Config: []string{"cluster-enabled yes", "notify-keyspace-events Kg$"}})
		if err == nil || errors.Is(err, sandbox.ErrNoBinary) {
			break
		}
	}
	programstest.OrSkip(t, err)
	t.Cleanup(func() { _ = server.Kill() })
	admin := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	defer admin.Close()
	if err := admin.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	for info := ""; info[:min(len(info), 16)] != "cluster_state:ok"; time.Sleep(50 * time.Millisecond) {
		if info, err = admin.ClusterInfo(ctx).Result(); err != nil {
			t.Fatal(err)
		}
	}
	s := opened(t, told(yamlOf(t, kindRedis, map[string]string{"redisHost": server.Addr(), "redisType": "cluster"}), "{isthmus}/"))
	got := storetest.Watch(t, s, "")
	got.AwaitClusters("")
	subscribed()
	storetest.Put(t, s, cluster("east", "a"), cluster("west", "a"))
	got.AwaitClusters("east=a west=a")
}

// TestWatchesThatEndWhileMuchIsWritten holds that Dapr's code is left no way to end the
// process, as it does when it is closed in the wrong moment.
func TestWatchesThatEndWhileMuchIsWritten(t *testing.T) {
	r := startRedis(t)
	component, prefix := yamlOf(t, kindRedis, r.settings("", redisPassword)), newPrefix()
	w := opened(t, told(component, prefix))
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = w.Write(ctx, configstore.Write{Object: cluster("east", fmt.Sprint("n", i))})
		}
	}()
	for range 30 {
		s := openStore(t, told(component, prefix), configstore.Scope{})
		done := make(chan error, 1)
		seen := make(chan struct{}, 1)
		go func() {
			for { // a machine that is busy may be late with an answer
				err := s.Watch(context.Background(), "", func(configstore.Change) error {
					select {
					case seen <- struct{}{}:
					default:
					}
					return nil
				})
				if errors.Is(err, configstore.ErrClosed) {
					done <- err
					return
				}
			}
		}()
		<-seen
		<-seen // a change, so it is subscribed or about to be
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-done
	}
	cancel()
	<-written
}
