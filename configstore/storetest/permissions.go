package storetest

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func access() []specification {
	return []specification{
		{"wrong credentials are an error that says so, and never an empty set", denied},
		{"no permission on one key takes nothing away, and says which", blind},
		{"no permission to write is an error that says so, and reading goes on", unwritable},
		{"a server whose certificate another authority signed is not believed", wrongCA},
	}
}

// What errors say, in whatever words the server has for it.
var (
	saysDenied    = regexp.MustCompile(`(?i)permission|denied|forbidden|not allowed|unauthori[sz]ed|authenticat|password|credential|token|wrongpass|noauth|noperm|\b40[13]\b`)
	saysAuthority = regexp.MustCompile(`(?i)certificate|authority|x509`)
)

func denied(t *testing.T, b Backend) {
	orSkip(t, b.Denied != nil, "this store has no credentials")
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"))
	shutOut(t, b, Closing(t, b.Denied(t)), saysDenied)
	Watch(t, s, "").awaitSet(Cluster("east", "a"))
}

func wrongCA(t *testing.T, b Backend) {
	orSkip(t, b.WrongCA != nil, "this store has no TLS")
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"))
	shutOut(t, b, Closing(t, b.WrongCA(t)), saysAuthority)
	Watch(t, s, "").awaitSet(Cluster("east", "a"))
}

// shutOut holds that a store gets nothing from its server, and says why.
func shutOut(t *testing.T, b Backend, s configstore.ReadWriter, why *regexp.Regexp) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all := calls(s, Cluster("east", "b"))
	all["watch"] = func(ctx context.Context) error {
		return s.Watch(ctx, "", func(c configstore.Change) error {
			t.Errorf("watch: delivered %+v; want an error and nothing else", c)
			return nil
		})
	}
	all["delete"] = func(ctx context.Context) error {
		_, err := s.Write(ctx, configstore.Write{Delete: eastKey})
		return err
	}
	for what, call := range all {
		begin := time.Now()
		b.refused(t, what, call(ctx), why)
		if took := time.Since(begin); took > patience {
			t.Errorf("%s: the error came after %s; want less than %s", what, took, patience)
		}
	}
}

// refused holds that an error says why, and is none of those that mean something else.
func (b Backend) refused(t testing.TB, what string, err error, why *regexp.Regexp) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	if !why.MatchString(err.Error()) {
		t.Errorf("%s: %v; want words such as %s", what, err, why)
	}
	for _, other := range []error{configstore.ErrNotFound, configstore.ErrConflict, configstore.ErrInvalid, configstore.ErrClosed, configstore.ErrTooLarge} {
		if errors.Is(err, other) {
			t.Errorf("%s: %v; it must not be taken for %q", what, err, other)
		}
	}
	b.names(t, what, err)
}

// names holds that an error of a server names the server, and shows no secret.
func (b Backend) names(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	text := err.Error()
	for _, secret := range b.Secrets {
		if strings.Contains(text, secret) {
			t.Errorf("%s: the error shows a secret: %s", what, strings.ReplaceAll(text, secret, "<the secret>"))
		}
	}
	if len(b.Servers) > 0 && !slices.ContainsFunc(b.Servers, func(server string) bool { return strings.Contains(text, server) }) {
		t.Errorf("%s: %s; want the server named, one of %v", what, text, b.Servers)
	}
}

// blind reads on where it was, and anew, by credentials that may not read one key. What
// it can't read must stay: by a refusal of that name, or since the Watch fails.
func blind(t *testing.T, b Backend) {
	orSkip(t, b.Blind != nil, "this store has no permissions on single keys")
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"), Cluster("west", "a"))
	r := Watch(t, s, "")
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	version := r.Last().Version
	r.stop()
	half := Closing(t, b.Blind(t, api.KeyPath(eastKey)))
	for _, from := range []configstore.Version{version, ""} {
		since := len(r.All())
		r.done = make(chan struct{})
		r.start(half, from)
		r.settle(since)
		r.stop()
		r.mu.Lock()
		_, east := r.set.Get(eastKey)
		_, west := r.set.Get(catalog.Key{Kind: catalog.KindCluster, Name: "west"})
		r.mu.Unlock()
		if !east || !west {
			t.Errorf("from version %q: after reading without permission on Cluster east, east stands: %t, west stands: %t; want both", from, east, west)
		}
		if changes := r.All()[since:]; len(changes) > 0 {
			refused := slices.ContainsFunc(changes[0].Refused, func(r configstore.Refusal) bool {
				return r.Key == eastKey && saysDenied.MatchString(r.Err.Error())
			})
			if changes[0].Full && !refused {
				t.Errorf("from version %q: delivered %+v; want Cluster east refused by name, for want of permission", from, changes[0])
			}
		} else {
			b.refused(t, "watch", r.err, saysDenied)
			if !strings.Contains(r.err.Error(), api.KeyPrefix) {
				t.Errorf("watch: %v; want the key named, or the prefix that it is in", r.err)
			}
		}
	}
	_, err := half.Get(t.Context(), eastKey)
	b.refused(t, "get", err, saysDenied)
	if _, err := half.Get(t.Context(), Cluster("west", "").Key()); err != nil {
		t.Errorf("get what may be read: %v", err)
	}
}

// settle waits until a Watch has delivered something, or has ended.
func (r *Reader) settle(since int) {
	r.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		select {
		case <-r.done:
			return
		default:
		}
		if len(r.All()) > since {
			return
		}
	}
	r.t.Fatal("Watch says nothing and does not end")
}

func unwritable(t *testing.T, b Backend) {
	orSkip(t, b.Unwritable != nil, "this store has no credentials to read and not write")
	s := open(t, b)
	held := put(t, b, s, Cluster("east", "a"), Cluster("west", "a"))
	reading := Closing(t, b.Unwritable(t))
	f := Follow(t, reading)
	f.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	for what, w := range map[string]configstore.Write{
		"put":    {Object: Cluster("east", "b")},
		"put if": {Object: Cluster("east", "b"), If: held[0]},
		"create": {Object: Cluster("north", "b"), If: configstore.Absent},
		"delete": {Delete: eastKey},
	} {
		_, err := reading.Write(t.Context(), w)
		if !errors.Is(err, configstore.ErrReadOnly) {
			b.refused(t, what, err, saysDenied)
		}
		b.names(t, what, err)
	}
	put(t, b, s, Cluster("west", "b"))
	f.awaitSet(Cluster("east", "a"), Cluster("west", "b"))
	f.AwaitStatus("one of a store that is read on", func(s configstore.Status) bool { return s.Synced && s.Err == nil })
}
