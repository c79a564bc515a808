package atomicfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhoMayHaveAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	us := os.Geteuid()
	for _, c := range []struct {
		mode   os.FileMode
		user   int
		denied os.FileMode
		want   string
	}{
		{0o600, us, 0o077, ""},
		{0o640, us, 0o022, ""},
		{0o640, us, 0o077, "other users may read it (mode 0640)"},
		{0o620, us, 0o022, "other users may write to it (mode 0620)"},
		{0o666, us, 0, ""},
		{0o600, us + 1, 0o077, "it belongs to user"},
		{0o600, AnyUser, 0o077, ""},
		{0o604, AnyUser, 0o077, "other users may read it"},
	} {
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := CheckOwner(info, c.user, c.denied); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("mode %04o, user %d, denied %04o: %q, want %q", c.mode, c.user, c.denied, got, c.want)
		}
	}
}
