package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func remembering() []specification {
	return []specification{
		{"the history of an object, newest first, deletions too", history},
		{"an object that never was has no history", noHistory},
	}
}

// openHistorian opens a store that keeps what objects were.
func openHistorian(t *testing.T, b Backend) (configstore.ReadWriter, configstore.Historian) {
	t.Helper()
	s := open(t, b)
	h, ok := s.(configstore.Historian)
	orSkip(t, ok, "this store does not keep what objects were")
	return s, h
}

func history(t *testing.T, b Backend) {
	s, h := openHistorian(t, b)
	first := put(t, b, s, Cluster("east", "a"))[0]
	put(t, b, s, Cluster("west", "a"))
	second := put(t, b, s, Cluster("east", "b"))[0]
	remove(t, s, Cluster("east", ""))
	third := put(t, b, s, Cluster("east", "c"))[0]
	for _, c := range []struct {
		most int
		want string
	}{
		{10, "c@" + third + " deleted b@" + second + " a@" + first},
		{2, "c@" + third + " deleted"},
		{1, "c@" + third},
	} {
		if got := historyOf(t, h, c.most); got != c.want {
			t.Errorf("history of at most %d: %s; want %s", c.most, got, c.want)
		}
	}
	remove(t, s, Cluster("east", ""))
	if got, want := historyOf(t, h, 2), "deleted c@"+third; got != want {
		t.Errorf("history of what is deleted: %s; want %s", got, want)
	}
}

// historyOf is the history of Cluster east in few words.
func historyOf(t *testing.T, h configstore.Historian, most int) string {
	t.Helper()
	past, err := h.History(t.Context(), eastKey, most)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, p := range past {
		switch o, ok := p.Object.(*catalog.Cluster); {
		case p.Deleted:
			words = append(words, "deleted")
		case ok:
			words = append(words, o.Network+"@"+p.Revision)
		default:
			words = append(words, fmt.Sprintf("%+v", p))
		}
	}
	return strings.Join(words, " ")
}

func noHistory(t *testing.T, b Backend) {
	s, h := openHistorian(t, b)
	put(t, b, s, Cluster("west", "a"))
	if past, err := h.History(t.Context(), eastKey, 10); !errors.Is(err, configstore.ErrNotFound) {
		t.Errorf("history: %+v, %v; want ErrNotFound", past, err)
	}
}
