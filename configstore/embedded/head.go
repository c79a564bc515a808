package embedded

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// head is a revision of the whole store. The nonce is that of the write that made it.
type head struct {
	revision uint64
	nonce    [8]byte
}

func newNonce() (n [8]byte) {
	_, _ = rand.Read(n[:]) // never fails, by its documentation
	return n
}

func (h head) bytes() []byte { return append(revisionKey(h.revision), h.nonce[:]...) }

func parseHead(b []byte) (h head) {
	if len(b) == 16 {
		h.revision = binary.BigEndian.Uint64(b)
		copy(h.nonce[:], b[8:])
	}
	return h
}

// version is the head as a reader keeps it.
func (h head) version() configstore.Version {
	return configstore.Version(formatRevision(h.revision) + "-" + hex.EncodeToString(h.nonce[:]))
}

func parseVersion(v configstore.Version) (h head, ok bool) {
	number, nonce, ok := strings.Cut(string(v), "-")
	revision, err := strconv.ParseUint(number, 10, 64)
	raw, hexErr := hex.DecodeString(nonce)
	if !ok || err != nil || hexErr != nil || len(raw) != len(h.nonce) {
		return head{}, false
	}
	h.revision = revision
	copy(h.nonce[:], raw)
	return h, true
}

func formatRevision(r uint64) string { return strconv.FormatUint(r, 10) }

func revisionKey(r uint64) []byte { return binary.BigEndian.AppendUint64(nil, r) }

// record notes which keys a write touched, forgets what is too old, and moves the head.
func record(tx *bbolt.Tx, at head, paths []string) error {
	history := tx.Bucket(historyBucket)
	entry := append([]byte(nil), at.nonce[:]...)
	for _, path := range paths {
		entry = append(entry, path...)
		entry = append(entry, '\n')
	}
	if err := history.Put(revisionKey(at.revision), entry); err != nil {
		return err
	}
	if at.revision > HistoryLength {
		if err := history.Delete(revisionKey(at.revision - HistoryLength)); err != nil {
			return err
		}
	}
	return tx.Bucket(metaBucket).Put(headKey, at.bytes())
}

// touched is the keys that were written after a version. ok is false when the file
// does not know the version, or has not kept all that came after it: then only the full
// set will do.
func touched(tx *bbolt.Tx, from head) (paths []string, ok bool) {
	at := parseHead(tx.Bucket(metaBucket).Get(headKey))
	if from == at {
		return nil, true
	}
	history := tx.Bucket(historyBucket)
	entry := history.Get(revisionKey(from.revision))
	if from.revision >= at.revision || len(entry) < 8 || [8]byte(entry[:8]) != from.nonce {
		return nil, false
	}
	seen := map[string]bool{}
	for r := from.revision + 1; r <= at.revision; r++ {
		entry := history.Get(revisionKey(r))
		if len(entry) < 8 {
			return nil, false
		}
		for path := range strings.Lines(string(entry[8:])) {
			if path = strings.TrimSuffix(path, "\n"); !seen[path] {
				seen[path] = true
				paths = append(paths, path)
			}
		}
	}
	return paths, true
}
