package etcd

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// place is how far a reader has come, and what lets it be told whether the server is still
// the one that it was then. A revision is only a number, and a server that is put back to
// a backup counts up to it again with other writes; etcd's own restore gives the old
// cluster id again when it is given the old names, as its documentation says to. So there
// is also the term of the leader, which each election and each restart raises, and the
// last key that the reader was told of, with what it was.
//
// Where any of it differs, the reader gets the full set. That is so after each election,
// too: rather too often than once too seldom.
type place struct {
	cluster  uint64
	term     uint64
	revision int64
	witness  witness
}

// witness is the last thing that a reader was told.
type witness struct {
	key  string // with the prefix; empty where there has been none
	hash string // of what it was; of nothing where it was deleted
}

// versionFormat has the parts of a place, of which each is one word to Sscanf.
const versionFormat = "%x-%x-%d-%q-%q"

// version is the place as a reader keeps it.
func (p place) version() configstore.Version {
	return configstore.Version(fmt.Sprintf(versionFormat, p.cluster, p.term, p.revision, p.witness.hash, p.witness.key))
}

// longestVersion bounds what is looked at: a key and some numbers.
const longestVersion = 4096

func parseVersion(v configstore.Version) (p place, ok bool) {
	if len(v) > longestVersion {
		return place{}, false
	}
	_, err := fmt.Sscanf(string(v), versionFormat, &p.cluster, &p.term, &p.revision, &p.witness.hash, &p.witness.key)
	return p, err == nil && p.revision > 0 && p.version() == v
}

// at is the place that an answer tells of.
func at(header *pb.ResponseHeader, revision int64, w witness) place {
	return place{cluster: header.ClusterId, term: header.RaftTerm, revision: revision, witness: w}
}

// testify is the witness that a key and its value are.
func testify(kv *mvccpb.KeyValue) witness {
	h := sha256.New()
	fmt.Fprintf(h, "%d %d %d %d ", kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease)
	h.Write(kv.Value)
	return witness{string(kv.Key), hex.EncodeToString(h.Sum(nil)[:8])}
}

// newest is the witness of a full set.
func newest(kvs []*mvccpb.KeyValue) witness {
	var last *mvccpb.KeyValue
	for _, kv := range kvs {
		if last == nil || kv.ModRevision > last.ModRevision {
			last = kv
		}
	}
	if last == nil {
		return witness{}
	}
	return testify(last)
}

// deleted is the witness that a deletion is.
func deleted(kv *mvccpb.KeyValue) witness { return witness{key: string(kv.Key)} }
