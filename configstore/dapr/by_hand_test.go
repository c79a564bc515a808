package dapr

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/logged"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// subscribed waits until a Watch has certainly been subscribed, and has looked for the
// last time before it waits for a heartbeat.
func subscribed() { time.Sleep(rescanSoon + 500*time.Millisecond) }

// told is a Config by which a reader never looks by itself once it is subscribed.
func told(component, prefix string) Config {
	return Config{Component: component, Prefix: prefix, Heartbeat: time.Hour, Rescan: time.Hour}
}

func opened(t testing.TB, c Config) *Store {
	return storetest.Closing(t, openStore(t, c, configstore.Scope{}))
}

var eastPath, westPath = api.KeyPath(cluster("east", "").Key()), api.KeyPath(cluster("west", "").Key())

func cluster(name, network string) *catalog.Cluster { return storetest.Cluster(name, network) }

func jsonOf(o catalog.Object) []byte { return api.EncodeJSON(o) }

func TestRedisTellsByTheLeastPrivilege(t *testing.T) {
	r, prefix := startRedis(t), newPrefix()
	reader := r.user(t, pageRules(t, "isthmus-reader", prefix))
	writer := r.user(t, pageRules(t, "isthmus", prefix))
	w := opened(t, told(yamlOf(t, kindRedis, r.settings(writer, redisPassword)), prefix))
	storetest.Put(t, w, cluster("east", "a"))
	got := storetest.Watch(t, opened(t, told(yamlOf(t, kindRedis, r.settings(reader, redisPassword)), prefix)), "")
	got.AwaitClusters("east=a")
	subscribed()
	storetest.Put(t, w, cluster("east", "b"), cluster("west", "b"))
	got.AwaitClusters("east=b west=b")
	if _, err := w.Write(t.Context(), configstore.Write{Delete: cluster("east", "").Key()}); err != nil {
		t.Fatal(err)
	}
	got.AwaitClusters("west=b")
	if n, err := w.Reindex(t.Context()); n != 1 || err != nil {
		t.Errorf("index: %d, %v; want 1", n, err)
	}
}

func TestRedisByHand(t *testing.T) {
	r, prefix := startRedis(t), newPrefix()
	set := func(path, text string) {
		t.Helper()
		if err := r.admin.Set(t.Context(), prefix+path, text, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set(eastPath, string(jsonOf(cluster("east", "a")))) // no version, no index, no head
	component := yamlOf(t, kindRedis, r.settings("", redisPassword))
	s := opened(t, told(component, prefix))
	got := storetest.Watch(t, s, "")
	got.AwaitClusters("east=a")
	subscribed()
	set(eastPath, string(jsonOf(cluster("east", "b")))+"||17")
	set(westPath, string(jsonOf(cluster("west", "b"))))
	set(headPath, "look")
	got.AwaitClusters("east=b west=b")
	storetest.Put(t, s, cluster("north", "a")) // Isthmus makes a head of its own of it
	got.AwaitClusters("east=b north=a west=b")
	set(westPath, string(jsonOf(cluster("west", "c"))))
	r.admin.Append(t.Context(), prefix+headPath, "+Cluster/west")
	got.AwaitClusters("east=b north=a west=c")
	set(westPath, string(jsonOf(cluster("west", "b"))))
	r.admin.Append(t.Context(), prefix+headPath, "+Cluster/west")
	storetest.Put(t, s, cluster("north", "b")) // takes over what was appended
	got.AwaitClusters("east=b north=b west=b")
	set(headPath, "look again")

	late := storetest.Watch(t, opened(t, Config{Component: component, Prefix: prefix, Heartbeat: time.Hour, Rescan: time.Second}), "")
	late.AwaitClusters("east=b north=b west=b")
	subscribed()
	set(eastPath, string(jsonOf(cluster("east", "c"))))
	r.admin.Del(t.Context(), prefix+westPath)
	late.AwaitClusters("east=c north=b")
	if n, err := s.Reindex(t.Context()); n != 2 || err != nil {
		t.Errorf("index: %d, %v; want 2", n, err)
	}
	members, err := r.admin.SMembers(t.Context(), prefix+indexPath+"Cluster").Result()
	if err != nil || len(members) != 2 {
		t.Errorf("the index holds %v, %v; want east and north", members, err)
	}
	got.AwaitClusters("east=c north=b")
}

func TestRedisThatLosesItsDataTakesNothingAway(t *testing.T) {
	r, prefix := startRedis(t), newPrefix()
	s := opened(t, Config{Component: yamlOf(t, kindRedis, r.settings("", redisPassword)), Prefix: prefix})
	storetest.Put(t, s, cluster("east", "a"))
	got := storetest.Watch(t, s, "")
	got.AwaitClusters("east=a")
	subscribed()
	if err := r.admin.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	err := got.AwaitEnd()
	if err == nil || !strings.Contains(err.Error(), "everything is gone") || got.Clusters() != "east=a" {
		t.Errorf("Watch ended with %v, and its reader has %q; want what stands to stand", err, got.Clusters())
	}
	if err := s.Watch(t.Context(), got.Last().Version, func(c configstore.Change) error { t.Errorf("delivered %+v", c); return nil }); err == nil {
		t.Error("the next Watch goes on")
	}
	if err := r.admin.Set(t.Context(), prefix+headPath, "meant it", 0).Err(); err != nil {
		t.Fatal(err)
	}
	storetest.Watch(t, s, got.Last().Version).AwaitClusters("")
	fresh := opened(t, Config{Component: yamlOf(t, kindRedis, r.settings("", redisPassword)), Prefix: "another/"})
	storetest.Watch(t, fresh, "").AwaitClusters("")
}

func TestRedisWithForeignValues(t *testing.T) {
	r, prefix := startRedis(t), newPrefix()
	root := prefix + api.KeyPrefix
	r.admin.LPush(t.Context(), root+"Cluster/list", "a")
	r.admin.SAdd(t.Context(), root+"_index/Cluster", "Cluster/nothing", "../../x", "AppExport/a/b")
	r.admin.Set(t.Context(), root+"Cluster/east", "a||b||c", 0)
	r.admin.Set(t.Context(), root+"Cluster/[a-z]*?", "x", 0)
	r.admin.Set(t.Context(), prefix+"isthmus/v1alpha2/Cluster/west", "x", 0)
	s := opened(t, Config{Component: yamlOf(t, kindRedis, r.settings("", redisPassword)), Prefix: prefix})
	storetest.Put(t, s, cluster("west", "a"))
	got := storetest.Watch(t, s, "")
	got.AwaitClusters("west=a")
	if refused := got.Last().Refused; len(refused) != 2 || refused[1].Key != cluster("east", "").Key() {
		t.Errorf("refused %v; want east and the other", refused)
	}
}

func TestASecretThatIsChangedIsReadAgain(t *testing.T) {
	r, prefix := startRedis(t), newPrefix()
	user := r.user(t, "allcommands allkeys allchannels")
	dir := t.TempDir()
	secret := writeFile(t, dir+"/secrets/redis/password", redisPassword)
	file := writeFile(t, dir+"/c.yaml", "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {name: c}\nspec:\n  type: configuration.redis\n  version: v1\n  metadata:\n  - {name: redisHost, value: \""+r.link.Addr()+"\"}\n  - {name: redisUsername, value: "+user+"}\n  - {name: redisPassword, secretKeyRef: {name: redis, key: password}}\n")
	s := opened(t, Config{Component: file, Secrets: dir + "/secrets", Prefix: prefix})
	storetest.Put(t, s, cluster("east", "a"))
	if err := r.admin.Do(t.Context(), "ACL", "SETUSER", user, "resetpass", ">another-s3cret").Err(); err != nil {
		t.Fatal(err)
	}
	r.link.Fail(t)() // connections that stand know no passwords
	err := s.Watch(t.Context(), "", func(configstore.Change) error { return nil })
	if err == nil || strings.Contains(err.Error(), redisPassword) {
		t.Errorf("watch with the old password: %v; want an error without it", err)
	}
	writeFile(t, secret, "another-s3cret\n")
	_ = s.Watch(t.Context(), "", func(configstore.Change) error { return context.Canceled }) // at most this one fails
	storetest.Watch(t, s, "").AwaitClusters("east=a")
}

func TestPostgresByHand(t *testing.T) {
	p := startPostgres(t)
	database, prefix := p.newDatabase(t), newPrefix()
	p.put(t, database, prefix+eastPath, jsonOf(cluster("east", "a")))
	s := opened(t, told(yamlOf(t, kindPostgres, p.settings(database, writerUser, postgresPassword)), prefix))
	got := storetest.Watch(t, s, "")
	got.AwaitClusters("east=a")
	subscribed()
	p.put(t, database, prefix+eastPath, jsonOf(cluster("east", "b"))) // there is no head yet
	p.put(t, database, prefix+westPath, jsonOf(cluster("west", "b")))
	got.AwaitClusters("east=b west=b")
	storetest.Put(t, s, cluster("north", "a"))
	got.AwaitClusters("east=b north=a west=b")
	p.put(t, database, prefix+westPath, nil)
	got.AwaitClusters("east=b north=a")
	if n, err := s.Reindex(t.Context()); n != 2 || err != nil {
		t.Errorf("index: %d, %v; want 2", n, err)
	}
	p.exec(t, database, "DELETE FROM configtable")
	err := got.AwaitEnd()
	if err == nil || !strings.Contains(err.Error(), "everything is gone") || got.Clusters() != "east=b north=a" {
		t.Errorf("Watch ended with %v, and its reader has %q; want what stands to stand", err, got.Clusters())
	}
}

func TestPostgresWithATableAsDaprShowsIt(t *testing.T) {
	p := startPostgres(t)
	database := p.newDatabase(t)
	p.exec(t, database, "ALTER TABLE configtable DROP CONSTRAINT configtable_pkey")
	for version, network := range map[string]string{"2": "b", "10": "c", "1": "a"} {
		p.exec(t, database, "INSERT INTO configtable VALUES ($1, $2, $3)", eastPath, string(jsonOf(cluster("east", network))), version)
	}
	s := opened(t, told(yamlOf(t, kindPostgres, p.settings(database, writerUser, postgresPassword)), ""))
	got := storetest.Watch(t, s, "")
	got.AwaitClusters("east=c")
	subscribed()
	storetest.Put(t, s, cluster("east", "d"))
	got.AwaitClusters("east=d")
}

func TestPostgresSubscribesAgainAfterItsConnectionWasEnded(t *testing.T) {
	p := startPostgres(t)
	database := p.newDatabase(t)
	s := opened(t, told(yamlOf(t, kindPostgres, p.settings(database, writerUser, postgresPassword)), ""))
	storetest.Put(t, s, cluster("east", "a"))
	got := storetest.Watch(t, s, "")
	got.AwaitClusters("east=a")
	subscribed()
	p.exec(t, database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ILIKE 'listen%'")
	p.put(t, database, westPath, jsonOf(cluster("west", "a"))) // while nobody listens
	got.AwaitClusters("east=a west=a")
	subscribed()
	p.put(t, database, westPath, jsonOf(cluster("west", "b")))
	got.AwaitClusters("east=a west=b")
}

// TestRedisThatNotifiesNobodyIsNamed also holds that changes are followed all the same.
func TestRedisThatNotifiesNobodyIsNamed(t *testing.T) {
	r, prefix := startRedis(t), newPrefix()
	w := opened(t, told(yamlOf(t, kindRedis, r.settings("", redisPassword)), prefix))
	var log logged.Buffer
	reader := r.user(t, pageRules(t, "isthmus-reader", prefix))
	c := told(yamlOf(t, kindRedis, r.settings(reader, redisPassword)), prefix)
	c.Heartbeat = 20 * time.Millisecond
	s, err := Open(c, configstore.Scope{}, slog.New(slog.NewTextHandler(&log, nil)))
	programstest.OrSkip(t, err)
	t.Cleanup(func() { _ = s.Close() })
	got := storetest.Watch(t, s, "")
	subscribed()
	lacks := func(want bool) {
		t.Helper()
		all, err := s.Lacks(t.Context())
		if err != nil || (len(all) > 0) != want || want && !strings.Contains(all[0], "each takes up to 20ms; set notify-keyspace-events to Kg$ in redis.conf") {
			t.Errorf("it lacks %q (%v)", all, err)
		}
	}
	lacks(false)
	programstest.OrSkip(t, r.admin.ConfigSet(t.Context(), "notify-keyspace-events", "").Err())
	lacks(true)
	defer lacks(false)
	defer func() { programstest.OrSkip(t, r.admin.ConfigSet(t.Context(), "notify-keyspace-events", "KA").Err()) }()
	change := func(network string) {
		t.Helper()
		storetest.Put(t, w, cluster("east", network))
		got.AwaitClusters("east=" + network)
	}
	said := func() int { return strings.Count(log.String(), "tells nobody of changes") }
	end := time.Now().Add(testPatience)
	for n := 0; said() == 0 && time.Now().Before(end); n++ { // on a busy machine it may have subscribed just now, and look anyway
		change(fmt.Sprint("n", n))
	}
	for _, network := range []string{"a", "b", "c", "d", "e"} {
		change(network)
	}
	if said() != 1 || !strings.Contains(log.String(), "set notify-keyspace-events to Kg$") {
		t.Errorf("logged %q; want what is amiss, once, and what to do", log.String())
	}
}
