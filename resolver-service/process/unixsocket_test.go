package process

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestTheSocketsModeIsItsOwn whatever the process's umask is.
func TestTheSocketsModeIsItsOwn(t *testing.T) {
	for mask, mode := range map[int]fs.FileMode{0: 0o600, 0o22: 0o660, 0o777: 0o666} {
		dir := t.TempDir()
		path := filepath.Join(dir, "r.sock")
		before := syscall.Umask(mask)
		l, err := listenUnix(path, mode)
		syscall.Umask(before)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Perm() != mode || info.Mode()&os.ModeSocket == 0 {
			t.Errorf("with umask %o the socket is %v (%v), want %v", mask, info.Mode(), err, mode)
		}
		if l.Addr().String() != path {
			t.Errorf("it listens at %s", l.Addr())
		}
		if conn, err := net.Dial("unix", path); err != nil {
			t.Error(err)
		} else {
			conn.Close()
		}
		l.Close()
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("it leaves %v behind", left)
		}
	}
}

// TestASocketIsMadeInAPrivateDirectory where nobody else gets before it has its mode.
func TestASocketIsMadeInAPrivateDirectory(t *testing.T) {
	dir, err := privateDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v, %v", info.Mode(), err)
	}
	file := filepath.Join(t.TempDir(), "r.sock")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := listenUnix(file, 0o600); err == nil || !strings.Contains(err.Error(), "no socket") {
		l.Close()
		t.Errorf("a file that is no socket was replaced: %v", err)
	}
}
