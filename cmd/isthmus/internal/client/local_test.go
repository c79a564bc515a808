package client

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOperatorSocketsOfThisMachine(t *testing.T) {
	dir := t.TempDir()
	// What /proc/net/unix of Linux 6.8 lists, with sockets of several services.
	const head = "Num       RefCount Protocol Flags    Type St Inode Path\n0000000060c51054: 00000003 00000000 00000000 0001 03  1601\n"
	const listens, talks = "0000000060c51055: 00000002 00000000 00010000 0001 01 22846 ", "0000000060c51056: 00000003 00000000 00000000 0001 03    12 "
	west, east, plain := filepath.Join(dir, "west"), filepath.Join(dir, "my east"), filepath.Join(dir, "plain")
	for _, path := range []string{
		filepath.Join(west, "operator-west.sock"), filepath.Join(west, "handover-west.sock"), filepath.Join(west, "operator-west.sock.old"),
		filepath.Join(east, "operator-east-isthmus-0.sock"), filepath.Join(plain, "operator.sock"),
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	all := head + listens + west + "/.00af/s\n" + talks + west + "/.00af/s\n" + listens + west + "/.e89e/s\n" + listens + east + "/.1234/s\n"
	for _, c := range []struct{ list, cluster, want string }{
		{all, "", "my east/operator-east-isthmus-0.sock,west/operator-west.sock"},
		{all, "west", "west/operator-west.sock"},
		{all, "east", "my east/operator-east-isthmus-0.sock"},
		{all, "eas", ""},
		{head + listens + plain + "/.00af/s\n", "west", "plain/operator.sock"},
		{all + listens + plain + "/.00af/s\n", "west", "west/operator-west.sock"},
		{head + talks + west + "/.00af/s\n", "", ""},
		{head + listens + "@" + west + "/.00af/s\n", "", ""},
		{head + listens + west + "/s\n" + listens + dir + "/gone/.00af/s\n", "", ""},
		{head, "", ""},
	} {
		if got := strings.ReplaceAll(strings.Join(socketsIn(c.list, c.cluster), ","), dir+"/", ""); got != c.want {
			t.Errorf("%q: got %s, want %s", c.cluster, got, c.want)
		}
	}
}

// A socket counts if nobody but this user could have put it there: whoever has it is asked, and
// told what is to be written.
func TestOnlyASocketOfOnesOwnCounts(t *testing.T) {
	dir, err := os.MkdirTemp("", "isthmus") // a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "operator-west.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for _, c := range []struct {
		mode os.FileMode
		user int
		want bool
	}{
		{0o600, os.Geteuid(), true},
		{0o660, os.Geteuid(), false},
		{0o606, os.Geteuid(), false},
		{0o600, os.Geteuid() + 1000, false},
	} {
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		if got := trusted(path, c.user); got != c.want {
			t.Errorf("mode %o, user %d: %t", c.mode, c.user, got)
		}
	}
	if trusted(filepath.Join(dir, "missing.sock"), os.Geteuid()) || trusted(dir, os.Geteuid()) {
		t.Error("what is no socket counts")
	}
	// To root, another user's socket counts only in a directory that root has given to them: not below
	// /tmp, where everybody makes directories.
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Chmod(path, 0o600), os.Chown(path, 4711, 4711)); err != nil {
			t.Fatal(err)
		}
		if trusted(path, 0) {
			t.Error("another user's socket below /tmp counts for root")
		}
	}
}

func TestASocketStandsInOnThisMachineAlone(t *testing.T) {
	t.Setenv("ISTHMUS_SOCKET", NoSocket)
	for _, server := range []string{"127.0.0.1:7400", "localhost:7400", "[::1]:7400", "10.0.0.1:7400", "unix:///run/x.sock"} {
		if got := (Options{Server: server, Sentry: "127.0.0.1:50001"}).inPlaceOfSentry(); got != "" {
			t.Errorf("%s with ISTHMUS_SOCKET=%s: %s", server, NoSocket, got)
		}
	}
}
