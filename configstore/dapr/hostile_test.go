package dapr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

// hostile is what anybody may notify who may connect to the database. Some of it ends the
// process of who listens by Subscribe of Dapr's store.
var hostile = []string{
	``, `x`, `null`, `[]`, `{}`, `{"data":null}`, `{"data":[]}`, `{"data":"x"}`, `{"data":{}}`,
	`{"data":{"key":1}}`, `{"data":{"key":null}}`, `{"data":{"key":{}}}`, `{"data":{"key":["a"]}}`,
	`{"data":{"key":"isthmus/v1alpha1/Cluster/east","value":1,"version":null}}`,
	`{"data":{"key":"isthmus/v1alpha1/Cluster/east","version":7}}`,
	`{"data":{"metadata":{"a":1},"key":"isthmus/v1alpha1/Cluster/east"}}`,
	`{"data":{"metadata":"x"}}`, `{"data":{"metadata":[1]}}`,
	`{"data":{"key":"isthmus/v1alpha1/Cluster/a\u0000b"}}`, `{"data":{"key":"\u0000"}}`,
	`{"data":{"key":"isthmus/v1alpha1/Cluster/\ud800"}}`, `{"data":{"key":"isthmus/v1alpha1/Cluster/日本"}}`,
	`{"data":{"key":"isthmus/v1alpha1/Cluster/'; DROP TABLE configtable; --"}}`,
	`{"data":{"key":"isthmus/v1alpha1/Cluster/%"}}`, `{"data":{"key":"isthmus/v1alpha1/_head"}}`,
	`{"data":{"key":"isthmus/v1alpha1/"}}`, `{"data":{"key":"isthmus/v1alpha1/Cluster/` + strings.Repeat("x", 7000) + `"}}`,
	strings.Repeat("[", 7900),
}

func TestPostgresWithHostileNotifications(t *testing.T) {
	p := startPostgres(t)
	database := p.newDatabase(t)
	s := opened(t, told(yamlOf(t, kindPostgres, p.settings(database, writerUser, postgresPassword)), ""))
	storetest.Put(t, s, cluster("east", "a"))
	got := storetest.Watch(t, s, "")
	got.AwaitClusters("east=a")
	subscribed()
	conn, err := pgx.Connect(t.Context(), strings.Replace(p.URL(database), "postgres:"+adminPassword, sidecarUser+":"+strings.ReplaceAll(strings.ReplaceAll(postgresPassword, " ", "%20"), "@", "%40"), 1))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for i, payload := range hostile {
		if _, err := conn.Exec(t.Context(), "SELECT pg_notify('config', $1)", payload); err != nil {
			t.Fatalf("%.60q: %v", payload, err)
		}
		if i%5 == 0 {
			time.Sleep(20 * time.Millisecond) // so that some of it is taken by itself
		}
	}
	p.put(t, database, westPath, jsonOf(cluster("west", "a"))) // is told after all of that, by the same connection
	got.AwaitClusters("east=a west=a")
	if got.Last().Full {
		t.Error("its reader was told everything again; want the Watch to have gone on")
	}
}

func FuzzNotified(f *testing.F) {
	for _, payload := range hostile {
		f.Add(payload)
	}
	row, err := json.Marshal(map[string]any{"data": map[string]any{"key": "p/" + eastPath, "value": "x", "metadata": nil}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(row))
	p := &postgresEngine{settings: settings{names: names{prefix: "p/"}}}
	f.Fuzz(func(t *testing.T, payload string) {
		path, _ := p.notified(payload)
		if path != "" && (!strings.HasPrefix(path, api.KeyPrefix) || strings.ContainsFunc(path, func(c rune) bool { return c < ' ' || c > '~' })) {
			t.Errorf("%q is about %q", payload, path)
		}
	})
}

// TestASubscriptionThatAlwaysEnds holds that a server which ends what listens, and nothing
// else, is not made to read everything each second.
func TestASubscriptionThatAlwaysEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{config: Config{Rescan: DefaultRescan}}
		server := &endsAtOnce{}
		set := settings{log: slog.New(slog.DiscardHandler), scrub: &scrubber{}}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		(&watch{store: s, lease: &lease{engine: server, settings: set}, hints: newHints()}).subscribe(ctx)
		s.background.Wait()
		var pauses []string
		for i, at := range server.asked[1:] {
			pauses = append(pauses, fmt.Sprint(at.Sub(server.asked[i])))
		}
		if got, want := strings.Join(pauses, " "), "50ms 100ms 200ms 400ms 800ms 1.6s 3.2s 6.4s 12.8s 25.6s 30s 30s"; got != want {
			t.Errorf("pauses %s; want %s", got, want)
		}
	})
}

// endsAtOnce is an engine whose subscriptions end when they have begun.
type endsAtOnce struct {
	engine
	asked []time.Time
}

func (e *endsAtOnce) listen(_ context.Context, to hints) error {
	e.asked = append(e.asked, time.Now())
	to.begin()
	return errors.New("idle session timeout")
}
