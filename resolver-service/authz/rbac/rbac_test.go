package rbac

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

var shared = serverstest.Kubernetes{Users: []string{"service", "powerless", "bob"}}

func TestMain(m *testing.M) { serverstest.Main(m, shared.End) }

// reviewer is one of the cluster west, with the rights of a user of the API server.
func reviewer(t *testing.T, account string) *Reviewer {
	t.Helper()
	shared.Need(t, func() error {
		if err := shared.Kubectl("apply", "-f", "../../../deploy/kubernetes/rbac.yaml"); err != nil {
			return err
		}
		for _, args := range []string{
			"create clusterrolebinding service --clusterrole=isthmus-reviewer --user=service",
			"create rolebinding service -n kube-system --role=extension-apiserver-authentication-reader --user=service",
			"create clusterrolebinding platform --clusterrole=west-alone --group=platform",
		} {
			if err := shared.Kubectl(strings.Fields(args)...); err != nil {
				return err
			}
		}
		role := "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: west-alone}\nrules: [{apiGroups: [isthmus.dev], resources: [resolvers], resourceNames: [west], verbs: [read]}]\n"
		_, err := shared.Run(role, "apply", "-f", "-")
		return err
	})
	r, err := New("west", apiserver.Config{Kubeconfig: shared.Kubeconfig(t, account)}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

// client is a chain of one certificate.
func client(t *testing.T, by *sandbox.Authority, user string, groups ...string) []*x509.Certificate {
	t.Helper()
	cert, _, err := by.Client(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(cert)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return []*x509.Certificate{leaf}
}

func TestWhoSomebodyIs(t *testing.T) {
	r := reviewer(t, "service")
	stranger, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	own, bob := shared.API.Clients, serverstest.TokenOf("bob")
	for _, c := range []struct {
		what  string
		chain []*x509.Certificate
		token string
		name  string
		group string
		says  string
	}{
		{"by certificate", client(t, own, "ann", "platform"), "", "ann", "platform", ""},
		{"by token", nil, bob, "bob", "system:authenticated", ""},
		{"by certificate first", client(t, own, "ann"), bob, "ann", "system:authenticated", ""},
		{"by token, where the certificate is none of Kubernetes'", client(t, stranger, "ann"), bob, "bob", "", ""},
		{"by a certificate of somebody else", client(t, stranger, "ann"), "", "", "", `the client certificate of "ann" is none of this Kubernetes cluster`},
		{"without a name", client(t, own, ""), "", "", "", "names no user"},
		{"by a token that nobody has", nil, "wrong", "", "", "Kubernetes does not know the token"},
		{"nobody", nil, "", "", "", "nobody is named"},
	} {
		user, err := r.Identify(t.Context(), c.chain, c.token)
		switch {
		case c.says != "":
			if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, %v", c.what, user, err)
			}
		case err != nil || user.Name != c.name || c.group != "" && !slices.Contains(user.Groups, c.group):
			t.Errorf("%s: %+v, %v; want %s of %s", c.what, user, err, c.name, c.group)
		}
	}
}

func TestWhatSomebodyMayDo(t *testing.T) {
	r := reviewer(t, "service")
	ann := User{Name: "ann", Groups: []string{"platform"}}
	if err := r.Allow(t.Context(), ann, "read"); err != nil {
		t.Error(err)
	}
	err := r.Allow(t.Context(), ann, "write")
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "bind the ClusterRole isthmus-operator-write") {
		t.Errorf("write: %v", err)
	}
	east, err := New("east", apiserver.Config{Kubeconfig: shared.Kubeconfig(t, "service")}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer east.server.Close()
	if err := east.Allow(t.Context(), ann, "read"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a role for west alone lets in at east: %v", err)
	}
}

// TestAServiceWithoutItsRightsLetsNobodyIn, and says which they are.
func TestAServiceWithoutItsRightsLetsNobodyIn(t *testing.T) {
	r := reviewer(t, "powerless")
	for what, c := range map[string]struct {
		err  error
		says string
	}{
		"a token": {errorOf(r.Identify(t.Context(), nil, "any")), "create tokenreviews, as the ClusterRole isthmus-reviewer does"},
		"a certificate": {errorOf(r.Identify(t.Context(), client(t, shared.API.Clients, "ann"), "")),
			"the Role extension-apiserver-authentication-reader"},
		"a right": {r.Allow(t.Context(), User{Name: "ann"}, "read"), "create subjectaccessreviews"},
	} {
		if status.Code(c.err) != codes.Unavailable || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%s: %v; want %s", what, c.err, c.says)
		}
	}
}

func errorOf(_ User, err error) error { return err }

// TestAnswersAreRememberedForAWhile, by a server that counts the questions: the time of a real one is
// not that of the test.
func TestAnswersAreRememberedForAWhile(t *testing.T) {
	c := newCache[int]()
	key := func(i int) (k [sha256.Size]byte) {
		binary.BigEndian.PutUint64(k[:], uint64(i))
		return k
	}
	synctest.Test(t, func(t *testing.T) {
		c.put(key(0), 7, knownFor)
		time.Sleep(knownFor - time.Nanosecond)
		if v, ok := c.get(key(0)); !ok || v != 7 {
			t.Errorf("remembered %d, %v", v, ok)
		}
		time.Sleep(time.Nanosecond)
		if _, ok := c.get(key(0)); ok {
			t.Error("it is remembered for too long")
		}
		for i := range 3 * maxRemembered {
			c.put(key(i), i, knownFor)
			if v, ok := c.get(key(i)); !ok || v != i || c.all.Len() > maxRemembered {
				t.Fatalf("%d: remembered %d, %v, of %d", i, v, ok, c.all.Len())
			}
		}
	})
	var asked atomic.Int32
	fake := serverstest.FakeKubernetes(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprint(w, `{"status":{"authenticated":true,"user":{"username":"bob"},"allowed":true}}`)
	}))
	r, err := New("west", apiserver.Config{Kubeconfig: fake}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer r.server.Close()
	for range 10 {
		user, err := r.Identify(t.Context(), nil, "token")
		if err == nil {
			err = r.Allow(t.Context(), user, "read")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("the API server was asked %d times", n)
	}
}
