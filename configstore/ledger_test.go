package configstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api"
)

func pair(name, network string) Pair {
	c := cluster(name, network)
	return Pair{Path: api.KeyPath(c.Object.Key()), Value: api.EncodeJSON(c.Object), Revision: network}
}

func badPair(path string) Pair { return Pair{Path: path, Value: []byte("{"), Revision: "bad"} }

const (
	eastPath   = "isthmus/v1alpha1/Cluster/east"
	westPath   = "isthmus/v1alpha1/Cluster/west"
	readmePath = "isthmus/v1alpha1/README"
)

// said is a change in few words, with what is refused.
func said(c Change) string {
	words := strings.Fields(brief(c))
	for _, r := range c.Refused {
		words = append(words, "!"+r.Where)
	}
	return strings.Join(words, " ")
}

func TestEachChangeOfALedgerNamesAllThatIsRefused(t *testing.T) {
	l := Ledger{Prefix: "team/"}
	for i, c := range []struct {
		change Change
		want   string
	}{
		{l.Reset([]Pair{badPair(eastPath), pair("west", "a"), badPair(readmePath)}, "1"), "full +west=a !team/" + eastPath + " !team/" + readmePath},
		{l.Apply([]Pair{pair("north", "a")}, nil, "2"), "+north=a !team/" + eastPath + " !team/" + readmePath},
		{l.Apply([]Pair{pair("east", "b")}, nil, "3"), "+east=b !team/" + readmePath},
		{l.Apply([]Pair{badPair(westPath)}, nil, "4"), "!team/" + westPath + " !team/" + readmePath},
		{l.Apply(nil, []string{westPath, readmePath}, "5"), "-west"},
		{l.Reset([]Pair{badPair(eastPath)}, "6"), "full !team/" + eastPath},
		{l.Reset(nil, "7"), "full"}, // it was deleted while the reader fell behind
		{l.Apply(nil, nil, "8"), ""},
	} {
		if got := said(c.change); got != c.want || c.change.Version != Version(fmt.Sprint(i+1)) {
			t.Errorf("change %d: %q at version %s; want %q", i+1, got, c.change.Version, c.want)
		}
	}
}

func TestALedgerThatGoesOnKnowsWhatIsRefused(t *testing.T) {
	var l Ledger
	l.Resume([]Pair{badPair(eastPath), pair("west", "a")})
	if got, want := said(l.Apply(nil, nil, "1")), "!"+eastPath; got != want {
		t.Errorf("the first change is %q, want %q", got, want)
	}
	refused := l.Refused()
	refused[0].Where = "the reader's own"
	if got := l.Refused()[0].Where; got != eastPath {
		t.Errorf("a reader has changed the ledger: %q", got)
	}
}

func TestPendingKeepsTheNewestOfEachPath(t *testing.T) {
	p := NewPending()
	for i := range 100 {
		p.Note(pair("east", fmt.Sprintf("n%d", i)))
		p.Note(pair("west", "a"))
		p.NoteDeleted("isthmus/v1alpha1/Cluster/north")
		p.Commit(Version(fmt.Sprint(i)))
	}
	p.Note(pair("north", "b"))
	p.NoteDeleted(westPath)
	p.Commit("last")
	<-p.News()
	put, deleted, at := p.Take()
	if len(put) != 2 || put[0].Revision != "n99" || put[1].Revision != "b" || len(deleted) != 1 || deleted[0] != westPath || at != "last" {
		t.Errorf("took %v, %v, %s", put, deleted, at)
	}
	p.Note(pair("east", "half"))
	if put, deleted, _ := p.Take(); len(put)+len(deleted) > 0 {
		t.Errorf("took %v, %v, which was taken before or is not all that was written together", put, deleted)
	}
	select {
	case <-p.News():
		t.Error("there is news after all was taken")
	default:
	}
}
