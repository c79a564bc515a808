package nameresolution

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// received is a mirror of a view with orders at the addresses given, as a service
// sends it.
func received(t testing.TB, revision uint64, addresses ...string) *mirror {
	t.Helper()
	entry := catalog.NewEntry(orders, catalog.TextRule("a rule"), []catalog.Route{
		{RouteSpec: catalog.RouteSpec{Cluster: "west", Weight: 1}, Local: true, Ready: uint32(len(addresses)), Addresses: addresses},
		{RouteSpec: catalog.RouteSpec{Cluster: "east", Priority: 1, Weight: 1}, Gateway: true, Ready: 1, Addresses: []string{"orders.shop.east.isthmus.internal:15443"}},
	})
	m, err := (*mirror)(nil).with(&pb.WatchResponse{
		Revision: revision, Open: true, Put: []*pb.ViewEntry{wire.Entry(entry)},
		Gateways: &pb.Gateways{Domain: "isthmus.internal", Clusters: []*pb.ClusterGateways{{Cluster: "east", Addresses: []string{"203.0.113.7:15443"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func fileOf(path string, log *slog.Logger) *lastGood {
	return &lastGood{path: path, app: checkout, cluster: "west", log: log}
}

func TestTheLastGoodViewComesBackAsItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "checkout.view")
	was := received(t, 41, "10.0.0.1:50002", "10.0.0.2:50002")
	if err := fileOf(path, quiet).write(was); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	back, age := fileOf(path, slog.New(slog.NewTextHandler(&log, nil))).load()
	if back == nil || age < 0 || age > time.Minute || !strings.Contains(log.String(), "age=") {
		t.Fatalf("came back as %v, %s old; the log says %s", back, age, &log)
	}
	entry, _ := back.view.Entries.Get(orders)
	before, _ := was.view.Entries.Get(orders)
	if !entry.Same(before) || back.revision() != 41 || !back.view.Open || !back.view.Gateways.Equal(was.view.Gateways) {
		t.Errorf("came back as %+v", back.view)
	}
	digest, _ := back.digests.Get(orders)
	if want, _ := was.digests.Get(orders); digest != want || digest == 0 {
		t.Errorf("digest %x, was %x", digest, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; only its owner may read it", info.Mode(), err)
	}
}

// TestALastGoodViewThatOthersMayWriteIsNotUsed: it decides where calls go, and whom the guard lets in.
func TestALastGoodViewThatOthersMayWriteIsNotUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkout.view")
	if err := fileOf(path, quiet).write(received(t, 41, "10.0.0.1:50002")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if back, _ := fileOf(path, slog.New(slog.NewTextHandler(&log, nil))).load(); back != nil || !strings.Contains(log.String(), "other users may write to it") {
		t.Errorf("it is used: %v; the log says %s", back, &log)
	}
	if err := fileOf(path, quiet).write(received(t, 42, "10.0.0.1:50002")); err != nil {
		t.Fatal(err)
	}
	if back, _ := fileOf(path, quiet).load(); back == nil || back.revision() != 42 {
		t.Errorf("a new one is not used: %v", back)
	}
}

func TestALastGoodViewThatIsNotOursIsRefused(t *testing.T) {
	f := fileOf("x", quiet)
	good, err := f.format(received(t, 1, "10.0.0.1:50002"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.parse(good); err != nil {
		t.Fatal(err)
	}
	other := func(app catalog.App, cluster string) []byte {
		text, err := (&lastGood{app: app, cluster: cluster}).format(received(t, 1, "10.0.0.1:50002"), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for what, test := range map[string]struct {
		text []byte
		want string
	}{
		"empty":              {nil, "does not begin"},
		"another file":       {[]byte("kind: AppEndpoints\n"), "does not begin"},
		"another version":    {bytes.Replace(good, []byte("view/1"), []byte("view/2"), 1), "another version"},
		"cut short":          {good[:len(good)-3], "damaged"},
		"a byte changed":     {append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1), "damaged"},
		"of another app":     {other(ledger, "west"), "finance/ledger"},
		"of another cluster": {other(checkout, "east"), "in cluster east"},
		"nothing of a view":  {append(append(seal([]byte("{}\n")), '\n'), "{}\n"...), "is the view of"},
	} {
		if _, _, err := f.parse(test.text); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", what, err, test.want)
		}
	}
}

func TestAFileThatCantBeUsedIsAWarningAndNoView(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.view")
	if err := os.WriteFile(bad, []byte("isthmus-view/1 0000000000000000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, warns := range map[string]bool{bad: true, dir: true, filepath.Join(dir, "absent"): false, "": false} {
		var log bytes.Buffer
		m, _ := fileOf(path, slog.New(slog.NewTextHandler(&log, nil))).load()
		if m != nil || strings.Contains(log.String(), "WARN") != warns {
			t.Errorf("%q: %v; the log says %q", path, m, &log)
		}
	}
}

func TestTheViewIsSavedAfterChangesAndAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkout.view")
	f := fileOf(path, quiet)
	var current live.Value[*mirror]
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.follow(ctx, &current) }()
	current.Store(received(t, 1, "10.0.0.1:50002"))
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if m, _ := f.load(); m.revision() == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the view was not saved")
		}
	}
	current.Store(received(t, 2, "10.0.0.2:50002"))
	end() // within the pause between two writes
	<-done
	if m, _ := f.load(); m.revision() != 2 {
		t.Errorf("revision %d was saved last, want 2", m.revision())
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The end comes, and just before it a view, while the one of before is being written:
// here that fails, and what it says of it is the moment.
func TestAViewOfTheLastMomentIsSaved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "in the way")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var current live.Value[*mirror]
	ctx, end := context.WithCancel(t.Context())
	defer end()
	moment := writerFunc(func([]byte) {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
		current.Store(received(t, 2, "10.0.0.2:50002"))
		end()
	})
	f := fileOf(filepath.Join(dir, "checkout.view"), slog.New(slog.NewTextHandler(moment, nil)))
	current.Store(received(t, 1, "10.0.0.1:50002"))
	f.follow(ctx, &current)
	f.log = quiet
	if m, _ := f.load(); m.revision() != 2 {
		t.Errorf("revision %d was saved last, want 2", m.revision())
	}
}

// writerFunc is a writer that calls itself.
type writerFunc func([]byte)

func (w writerFunc) Write(p []byte) (int, error) { w(p); return len(p), nil }

// A disk that was full has room again, and nothing else changes.
func TestTheViewIsSavedOnceItCanBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "in the way")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		f := fileOf(filepath.Join(dir, "checkout.view"), quiet)
		var current live.Value[*mirror]
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); f.follow(ctx, &current) }()
		current.Store(received(t, 1, "10.0.0.1:50002"))
		time.Sleep(time.Second)
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(saveAgain + time.Second)
		if m, _ := f.load(); m.revision() != 1 {
			t.Error("the view was not saved when it could be")
		}
		end()
		<-done
	})
}

func FuzzLastGood(f *testing.F) {
	good, err := fileOf("x", quiet).format(received(f, 41, "10.0.0.1:50002"), time.Unix(0, 0))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, false)
	_, body, _ := bytes.Cut(good, []byte("\n"))
	f.Add(body, true)
	f.Fuzz(func(t *testing.T, text []byte, sealed bool) {
		if sealed {
			text = append(append(seal(text), '\n'), text...)
		}
		m, _, err := fileOf("x", quiet).parse(text)
		if err != nil {
			return
		}
		for app := range m.view.Entries.All() {
			_, _ = m.view.Find(app)
			m.view.Explain(app)
		}
		if _, err := fileOf("x", quiet).format(m, time.Now()); err != nil {
			t.Errorf("what was read can't be written: %v", err)
		}
	})
}
