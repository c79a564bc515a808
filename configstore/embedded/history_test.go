package embedded

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

func eastIs(network string) *catalog.Cluster { return storetest.Cluster("east", network) }

var eastKey = eastIs("").Key()

func write(t *testing.T, s *Store, writes ...configstore.Write) []string {
	t.Helper()
	revisions, err := s.Write(t.Context(), writes...)
	if err != nil {
		t.Fatal(err)
	}
	return revisions
}

// told is a history in few words, newest first: "3=b 2-deleted 1=a".
func told(t *testing.T, s *Store, key catalog.Key, most int) string {
	t.Helper()
	past, err := s.History(t.Context(), key, most)
	if errors.Is(err, configstore.ErrNotFound) {
		return "not found"
	}
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, p := range past {
		word := p.Revision + "-deleted"
		switch o := p.Object.(type) {
		case *catalog.Cluster:
			word = p.Revision + "=" + o.Network
		case nil:
			if p.Err != nil {
				word = p.Revision + "-unusable"
			}
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestWhatAnObjectWasIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "isthmus.db")
	s := open(t, path)
	begin := time.Now()
	if got := told(t, s, eastKey, 10); got != "not found" {
		t.Errorf("before it was written: %s", got)
	}
	write(t, s, configstore.Write{Object: eastIs("a")})
	write(t, s, configstore.Write{Object: eastIs("b")})
	// A neighbour in every order of keys must not be taken for it.
	write(t, s, configstore.Write{Object: &catalog.Cluster{Name: "east-2", Network: "x", StaleAfter: time.Second}},
		configstore.Write{Object: &catalog.Cluster{Name: "eas", Network: "x", StaleAfter: time.Second}})
	write(t, s, configstore.Write{Object: &catalog.Cluster{Name: "east-2", Network: "y", StaleAfter: time.Second}})
	write(t, s, configstore.Write{Delete: eastKey})
	if got := told(t, s, eastKey, 10); got != "5-deleted 2=b 1=a" {
		t.Errorf("deleted: %s", got)
	}
	write(t, s, configstore.Write{Object: eastIs("c")})
	putRaw(t, s, api.KeyPath(eastKey), []byte("{}"))
	for most, want := range map[int]string{0: "not found", 1: "7-unusable", 2: "7-unusable 6=c", 10: "7-unusable 6=c 5-deleted 2=b 1=a"} {
		if got := told(t, s, eastKey, most); got != want {
			t.Errorf("at most %d: %s, want %s", most, got, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	defer s.Close()
	past, err := s.History(t.Context(), eastKey, 10)
	if err != nil || len(past) != 5 {
		t.Fatalf("opened again: %v, %v", past, err)
	}
	for i, p := range past {
		if p.At.Before(begin) || p.At.After(time.Now()) || i > 0 && p.At.After(past[i-1].At) {
			t.Errorf("version %s was written at %s", p.Revision, p.At)
		}
	}
}

func TestTheHistoryOfAnObjectIsBounded(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "isthmus.db"))
	defer s.Close()
	s.db.NoSync = true
	for i := range 3 * ObjectHistory {
		write(t, s, configstore.Write{Object: eastIs(fmt.Sprintf("n%d", i))})
	}
	got := strings.Fields(told(t, s, eastKey, 1000))
	if len(got) != ObjectHistory || got[0] != "48=n47" || got[ObjectHistory-1] != "33=n32" {
		t.Errorf("%d versions are kept, want %d, the newest: %v", len(got), ObjectHistory, got)
	}
	for range ObjectHistory {
		write(t, s, configstore.Write{Delete: eastKey})
		write(t, s, configstore.Write{Object: eastIs("again")})
	}
	if got := strings.Fields(told(t, s, eastKey, 1000)); len(got) != ObjectHistory {
		t.Errorf("%d versions are kept of what was deleted and written again: %v", len(got), got)
	}
	checkPast(t, s)
}

// What was replaced longest ago goes first, and an object that was not written for
// long keeps what it was before its last write.
func TestTheWholeHistoryIsBounded(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "isthmus.db"))
	defer s.Close()
	s.db.NoSync = true
	s.historyBytes = 20_000
	write(t, s, configstore.Write{Object: eastIs("a")})
	for i := range 3 {
		for n := range 100 {
			write(t, s, configstore.Write{Object: &catalog.Cluster{Name: fmt.Sprintf("c%d", n), Network: fmt.Sprintf("n%d", i), StaleAfter: time.Second}})
		}
	}
	for name, want := range map[string]string{"c0": "202=n2 102=n1", "c99": "301=n2 201=n1 101=n0"} {
		if got := told(t, s, catalog.Key{Kind: catalog.KindCluster, Name: name}, 10); got != want {
			t.Errorf("%s has the history %s, want %s", name, got, want)
		}
	}
	write(t, s, configstore.Write{Object: eastIs("b")})
	if got := told(t, s, eastKey, 10); got != "302=b 1=a" {
		t.Errorf("what was replaced last has the history %s", got)
	}
	if total := checkPast(t, s); total > s.historyBytes || total < s.historyBytes/2 {
		t.Errorf("%d bytes of history are kept, want at most %d", total, s.historyBytes)
	}
}

// checkPast holds that the buckets of the history agree, and returns its bytes.
func checkPast(t *testing.T, s *Store) (total uint64) {
	t.Helper()
	err := s.view(func(tx *bbolt.Tx) error {
		counted, err := uint64(0), error(nil)
		order := tx.Bucket(pastOrderBucket)
		err = tx.Bucket(pastBucket).ForEach(func(key, value []byte) error {
			v, ok := parsePastVersion(key, value)
			path := string(key[:len(key)-9])
			counted += uint64(len(key) + len(value))
			if !ok || entrySize(order.Get(orderKey(path, v.replaced, v.revision))) != uint64(len(key)+len(value)) {
				return fmt.Errorf("entry %q of past is not in past-order", key)
			}
			return nil
		})
		if a, b := tx.Bucket(pastBucket).Stats().KeyN, order.Stats().KeyN; a != b {
			t.Errorf("%d entries in past, %d in past-order", a, b)
		}
		if p, err := pastBytes(tx); err != nil || p != counted {
			t.Errorf("the count says %d bytes (%v), and there are %d", p, err, counted)
		}
		total = counted
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return total
}

func pastBytes(tx *bbolt.Tx) (uint64, error) {
	b := tx.Bucket(metaBucket).Get(pastBytesKey)
	if len(b) != 8 {
		return 0, errors.New("no count")
	}
	return entrySize(b), nil
}

// A file that an earlier program wrote has no history, and gets one from then on.
func TestAFileWithoutHistoryIsTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "isthmus.db")
	s := open(t, path)
	write(t, s, configstore.Write{Object: eastIs("a")})
	strip := func(tx *bbolt.Tx) error {
		return errors.Join(tx.DeleteBucket(writtenBucket), tx.DeleteBucket(pastBucket), tx.DeleteBucket(pastOrderBucket), tx.Bucket(metaBucket).Delete(pastBytesKey))
	}
	if err := s.update(strip); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	defer s.Close()
	if got := told(t, s, eastKey, 10); got != "1=a" {
		t.Errorf("history %s, want what stands", got)
	}
	write(t, s, configstore.Write{Object: eastIs("b")})
	past, err := s.History(t.Context(), eastKey, 10)
	if err != nil || len(past) != 2 || past[0].At.IsZero() || !past[1].At.IsZero() {
		t.Errorf("history %v, %v; want the time of the last write only", past, err)
	}
	checkPast(t, s)
}
