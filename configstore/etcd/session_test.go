package etcd

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

func TestATokenThatTheServerForgotIsGotAgain(t *testing.T) {
	p := newPlace(t, &secureServer)
	s := storetest.Closing(t, p.Open(t).(*Store))
	storetest.Put(t, s, cluster("east", "a"))
	forget := func() { // the server forgets the tokens of a user whose password is set
		t.Helper()
		if _, err := p.Admin.UserChangePassword(t.Context(), p.user, serverstest.PasswordOf(p.user)); err != nil {
			t.Fatal(err)
		}
	}
	forget()
	storetest.Put(t, s, cluster("east", "b"))
	forget()
	storetest.Follow(t, s).AwaitClusters("east=b")
}

func TestAPasswordIsReadAgain(t *testing.T) {
	p := newPlace(t, &secureServer)
	c := p.config(t, p.user, serverstest.PasswordOf(p.user))
	s := storetest.Closing(t, p.open(t, c, configstore.Scope{}))
	storetest.Put(t, s, cluster("east", "a"))
	if _, err := p.Admin.UserChangePassword(t.Context(), p.user, "another-password"); err != nil {
		t.Fatal(err)
	}
	s.client.Forget()
	if _, err := s.Get(t.Context(), clusterKey("east")); err == nil || !strings.Contains(err.Error(), "authentication failed") || strings.Contains(err.Error(), serverstest.PasswordOf(p.user)) {
		t.Errorf("get with the old password: %v", err)
	}
	if err := os.WriteFile(c.Password.File, []byte("another-password"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), clusterKey("east")); err != nil {
		t.Errorf("get with the new password: %v", err)
	}
	if err := os.Remove(c.Password.File); err != nil {
		t.Fatal(err)
	}
	s.client.Forget()
	if _, err := s.Get(t.Context(), clusterKey("east")); err != nil || !errors.Is(c.Password.Look(), os.ErrNotExist) {
		t.Errorf("get without the password's file: %v, %v; want that the last one is used, and that the file is named", err, c.Password.Look())
	}
}

// etcd looks at permissions when a watch begins, not while it goes on.
func TestAPermissionThatIsTakenAwayShowsAtTheNextRead(t *testing.T) {
	p := newPlace(t, &secureServer)
	s := storetest.Closing(t, p.Open(t).(*Store))
	f := storetest.Follow(t, s)
	storetest.Put(t, s, cluster("east", "a"))
	f.AwaitClusters("east=a")
	if _, err := p.Admin.UserRevokeRole(t.Context(), p.user, p.user); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.List(t.Context()); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("list: %v; want that permission is denied", err)
	}
	p.Link.Fail(t)()
	eventually(t, func() error {
		if status, _ := f.Status().Load(); status.Err == nil || !strings.Contains(status.Err.Error(), "permission denied") {
			return errors.New("the status does not say that permission is denied")
		}
		return nil
	})
	if got := f.Clusters(); got != "east=a" {
		t.Errorf("the reader has %q; want what stood", got)
	}
	if _, err := p.Admin.UserGrantRole(t.Context(), p.user, p.user); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := s.Write(t.Context(), configstore.Write{Object: cluster("east", "b")})
		return err
	})
	f.AwaitClusters("east=b")
}
