package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestASecretIsReadWhereItIs(t *testing.T) {
	t.Setenv("ISTHMUS_TEST_TOKEN", "from the environment")
	t.Setenv("ISTHMUS_TEST_LINE", "hunter2\n")
	for _, c := range []struct {
		what   string
		secret *Secret
		want   string
	}{
		{"none", nil, ""},
		{"a file", &Secret{File: secretFile(t, "hunter2")}, "hunter2"},
		{"a file with a line break at its end, as editors leave it", &Secret{File: secretFile(t, "hunter2\r\n")}, "hunter2"},
		{"spaces are part of it", &Secret{File: secretFile(t, " hunter 2 \n")}, " hunter 2 "},
		{"a variable", &Secret{Env: "ISTHMUS_TEST_TOKEN"}, "from the environment"},
		{"a variable with a line break at its end, as a secret of Kubernetes may have it", &Secret{Env: "ISTHMUS_TEST_LINE"}, "hunter2"},
	} {
		if got, err := c.secret.Read(); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.what, got, err, c.want)
		}
		if err := c.secret.Check(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestAFileIsReadAtEveryUse(t *testing.T) {
	s := &Secret{File: secretFile(t, "old\n")}
	if got, _ := s.Read(); got != "old" {
		t.Fatalf("got %q", got)
	}
	if err := os.WriteFile(s.File, []byte("new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read(); err != nil || got != "new" {
		t.Errorf("after it was rotated: %q, %v", got, err)
	}
}

func TestASecretThatIsNotThereSaysWhere(t *testing.T) {
	t.Setenv("ISTHMUS_TEST_EMPTY", "")
	empty := secretFile(t, "\n")
	for _, c := range []struct {
		what   string
		secret *Secret
		want   string
		check  bool // says so, too
	}{
		{"no place", &Secret{}, "does not say where the secret is; write one of {file: /run/secrets/name} and {env: NAME}", true},
		{"two places", &Secret{File: "a", Env: "B"}, "does not say where the secret is", true},
		{"no file", &Secret{File: "/nowhere/token"}, "read the secret: open /nowhere/token: no such file", false},
		{"an empty file", &Secret{File: empty}, "read the secret: " + empty + " is empty", false},
		{"no variable", &Secret{Env: "ISTHMUS_TEST_NONE"}, "the environment has no ISTHMUS_TEST_NONE; set it, or name a file instead", false},
		{"an empty variable", &Secret{Env: "ISTHMUS_TEST_EMPTY"}, "the environment has no ISTHMUS_TEST_EMPTY", false},
	} {
		if got, err := c.secret.Read(); err == nil || got != "" || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %q, %v; want %q", c.what, got, err, c.want)
		}
		if err := c.secret.Check(); (err != nil) != c.check {
			t.Errorf("%s: the check says %v", c.what, err)
		}
	}
	if _, err := (&Secret{File: "/nowhere/token"}).Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is no fs.ErrNotExist", err)
	}
}

// Whoever prints a configuration prints where its secrets are.
func TestAPrintedSecretIsItsPlace(t *testing.T) {
	s := Secret{File: secretFile(t, "hunter2")}
	if text := fmt.Sprintf("%v %+v %#v", s, &s, s); strings.Contains(text, "hunter2") || !strings.Contains(text, s.File) {
		t.Errorf("printed: %s", text)
	}
}
