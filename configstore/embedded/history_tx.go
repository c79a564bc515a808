package embedded

import (
	"bytes"
	"encoding/binary"
	"time"

	"go.etcd.io/bbolt"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// Earlier states of objects are in three more buckets, which a program that knows nothing of them
// leaves alone. A write touches a few entries of each, however many there are.
//
//	written     path                            → revision and time of its last write
//	past        path, NUL, revision             → replaced, time, deleted, JSON
//	past-order  replaced, revision, path        → bytes of the entry in past
//
// "replaced" is the revision of the whole store from which on the object was another: the oldest
// entries are forgotten first. meta has the bytes of all entries.
var (
	writtenBucket   = []byte("written")
	pastBucket      = []byte("past")
	pastOrderBucket = []byte("past-order")
	pastBytesKey    = []byte("past-bytes")
)

// How much of what objects were is kept: of each so many versions, the one that stands
// among them, and of all together so many bytes.
const (
	ObjectHistory = 16
	HistoryBytes  = 64 << 20
)

// pastVersion is one entry of past: what an object was.
type pastVersion struct {
	revision uint64
	replaced uint64
	at       time.Time // of its write; zero where that is not known
	deleted  bool      // by the write of this revision
	value    []byte    // JSON; empty where deleted
}

const pastVersionHead = 17 // bytes before the JSON

func (v *pastVersion) bytes() []byte {
	b := binary.BigEndian.AppendUint64(nil, v.replaced)
	b = append(b, timeBytes(v.at)...)
	flag := byte(0)
	if v.deleted {
		flag = 1
	}
	return append(append(b, flag), v.value...)
}

// parsePastVersion reads an entry and copies what is the file's. ok is false where there is
// none in it.
func parsePastVersion(key, value []byte) (v pastVersion, ok bool) {
	if len(key) < 8 || len(value) < pastVersionHead {
		return pastVersion{}, false
	}
	return pastVersion{
		revision: binary.BigEndian.Uint64(key[len(key)-8:]), replaced: binary.BigEndian.Uint64(value),
		at: parseTime(value[8:]), deleted: value[16] != 0, value: bytes.Clone(value[pastVersionHead:]),
	}, true
}

func timeBytes(t time.Time) []byte {
	if t.IsZero() {
		return make([]byte, 8)
	}
	return binary.BigEndian.AppendUint64(nil, uint64(t.UnixNano()))
}

func parseTime(b []byte) time.Time {
	if n := binary.BigEndian.Uint64(b); n != 0 {
		return time.Unix(0, int64(n))
	}
	return time.Time{}
}

func pastPrefix(path string) []byte { return append([]byte(path), 0) }

func pastKey(path string, revision uint64) []byte {
	return binary.BigEndian.AppendUint64(pastPrefix(path), revision)
}

func orderKey(path string, replaced, revision uint64) []byte {
	return append(append(revisionKey(replaced), revisionKey(revision)...), path...)
}

// historyTx is what a transaction does to the history of objects.
type historyTx struct {
	tx    *bbolt.Tx
	bytes uint64 // of all entries
}

// openHistory makes the buckets in a file that has none yet: an earlier program wrote it.
func openHistory(tx *bbolt.Tx) (*historyTx, error) {
	for _, name := range [][]byte{writtenBucket, pastBucket, pastOrderBucket} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return nil, err
		}
	}
	p := &historyTx{tx: tx}
	if b := tx.Bucket(metaBucket).Get(pastBytesKey); len(b) == 8 {
		p.bytes = binary.BigEndian.Uint64(b)
	}
	return p, nil
}

// replace keeps what an edit is about to replace, and when the configstore.Edit was made.
func (p *historyTx) replace(e configstore.Edit, revision uint64, now time.Time) error {
	if old := p.tx.Bucket(objectsBucket).Get([]byte(e.Path)); old != nil {
		was := pastVersion{replaced: revision}
		if len(old) >= 8 {
			was.revision, was.value = binary.BigEndian.Uint64(old), bytes.Clone(old[8:])
		}
		was.at = writtenAt(p.tx, e.Path, was.revision)
		if err := p.add(e.Path, &was); err != nil {
			return err
		}
	}
	keep := ObjectHistory
	written := p.tx.Bucket(writtenBucket)
	if e.Value == nil {
		if err := p.add(e.Path, &pastVersion{revision: revision, replaced: revision, at: now, deleted: true}); err != nil {
			return err
		}
		if err := written.Delete([]byte(e.Path)); err != nil {
			return err
		}
	} else {
		keep-- // the one that stands
		if err := written.Put([]byte(e.Path), append(revisionKey(revision), timeBytes(now)...)); err != nil {
			return err
		}
	}
	return p.trimObject(e.Path, keep)
}

// writtenAt is when an object got its revision; zero where another program wrote it.
func writtenAt(tx *bbolt.Tx, path string, revision uint64) time.Time {
	written := tx.Bucket(writtenBucket)
	if written == nil {
		return time.Time{}
	}
	b := written.Get([]byte(path))
	if len(b) != 16 || binary.BigEndian.Uint64(b) != revision {
		return time.Time{}
	}
	return parseTime(b[8:])
}

func (p *historyTx) add(path string, v *pastVersion) error {
	key, value := pastKey(path, v.revision), v.bytes()
	size := uint64(len(key) + len(value))
	p.bytes += size
	if err := p.tx.Bucket(pastBucket).Put(key, value); err != nil {
		return err
	}
	return p.tx.Bucket(pastOrderBucket).Put(orderKey(path, v.replaced, v.revision), revisionKey(size))
}

// trimObject forgets the oldest versions of an object.
func (p *historyTx) trimObject(path string, keep int) error {
	var order [][]byte
	prefix := pastPrefix(path)
	c := p.tx.Bucket(pastBucket).Cursor()
	for key, value := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = c.Next() {
		if len(key) == len(prefix)+8 && len(value) >= pastVersionHead {
			order = append(order, orderKey(path, binary.BigEndian.Uint64(value), binary.BigEndian.Uint64(key[len(prefix):])))
		}
	}
	for len(order) > keep {
		if err := p.forget(order[0]); err != nil {
			return err
		}
		order = order[1:]
	}
	return nil
}

// trim forgets what was replaced longest ago, until no more than most bytes are left,
// and keeps the count.
func (p *historyTx) trim(most uint64) error {
	var order [][]byte
	left := p.bytes
	c := p.tx.Bucket(pastOrderBucket).Cursor()
	for key, value := c.First(); key != nil && left > most; key, value = c.Next() {
		order = append(order, bytes.Clone(key))
		left -= min(left, entrySize(value))
	}
	for _, key := range order {
		if err := p.forget(key); err != nil {
			return err
		}
	}
	return p.tx.Bucket(metaBucket).Put(pastBytesKey, revisionKey(p.bytes))
}

func entrySize(value []byte) uint64 {
	if len(value) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(value)
}

// forget removes the entry that a key of past-order leads to.
func (p *historyTx) forget(order []byte) error {
	bucket := p.tx.Bucket(pastOrderBucket)
	p.bytes -= min(p.bytes, entrySize(bucket.Get(order)))
	if len(order) > 16 {
		if err := p.tx.Bucket(pastBucket).Delete(pastKey(string(order[16:]), binary.BigEndian.Uint64(order[8:]))); err != nil {
			return err
		}
	}
	return bucket.Delete(order)
}

// pastVersions is what an object was, newest first, without what stands.
func pastVersions(tx *bbolt.Tx, path string, most int) []pastVersion {
	if tx.Bucket(pastBucket) == nil {
		return nil
	}
	var all []pastVersion
	prefix := pastPrefix(path)
	c := tx.Bucket(pastBucket).Cursor()
	last, _ := c.Seek(append(bytes.Clone(prefix), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff))
	key, value := c.Prev()
	if last == nil { // behind the last entry of all there is nowhere to step back from
		key, value = c.Last()
	}
	for ; len(all) < most && bytes.HasPrefix(key, prefix); key, value = c.Prev() {
		if v, ok := parsePastVersion(key, value); ok {
			all = append(all, v)
		}
	}
	return all
}
