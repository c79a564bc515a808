package etcd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// span is a range of keys: from begin to before end, or begin alone where end is empty.
type span struct{ begin, end string }

// spans are the ranges that the scope is in. A role needs to read these and no more.
func (s *Store) spans() []span {
	if s.scope.All() {
		return []span{below(s.config.Prefix + api.KeyPrefix)}
	}
	return []span{
		{begin: s.config.Prefix + api.KeyPath(s.scope.Selection())},
		below(s.config.Prefix + api.KeyPrefix + string(catalog.KindCluster) + "/"),
	}
}

func below(prefix string) span { return span{prefix, clientv3.GetPrefixRangeEnd(prefix)} }

// String is the range as an operator writes it.
func (r span) String() string { return r.begin }

func (s *Store) spansText() string {
	var all []string
	for _, r := range s.spans() {
		all = append(all, r.String())
	}
	return strings.Join(all, " and ")
}

// pair is a key and its value without our prefix.
func (s *Store) pair(kv *mvccpb.KeyValue) configstore.Pair {
	return configstore.Pair{Path: s.unprefixed(kv.Key), Value: kv.Value, Revision: formatRevision(kv.ModRevision)}
}

func (s *Store) unprefixed(key []byte) string {
	return strings.TrimPrefix(string(key), s.config.Prefix)
}

func formatRevision(r int64) string { return strconv.FormatInt(r, 10) }

// everything reads all pairs as they were at one revision; 0 is now. The header is that of
// the first answer: its revision is the one that was read, if that is now.
func (s *Store) everything(ctx context.Context, revision int64) (all []*mvccpb.KeyValue, header *pb.ResponseHeader, err error) {
	for _, r := range s.spans() {
		for page, err := range s.client.Pages(ctx, r.begin, r.end, revision) {
			if err != nil {
				return nil, nil, err
			}
			if header == nil {
				header = page.Header
			}
			if revision == 0 {
				revision = page.Header.Revision
			}
			all = append(all, page.Kvs...)
		}
	}
	return all, header, nil
}

// get is one request, in the time that a request has.
func (s *Store) get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	return s.client.Get(ctx, key, options...)
}

func (s *Store) pairs(kvs []*mvccpb.KeyValue) []configstore.Pair {
	pairs := make([]configstore.Pair, len(kvs))
	for i, kv := range kvs {
		pairs[i] = s.pair(kv)
	}
	return pairs
}

// Get is that of configstore.Reader.
func (s *Store) Get(ctx context.Context, key catalog.Key) (configstore.Stored, error) {
	ctx, leave, err := s.life.Enter(ctx)
	if err != nil {
		return configstore.Stored{}, err
	}
	defer leave()
	answer, err := s.get(ctx, s.config.Prefix+api.KeyPath(key))
	if err != nil {
		return configstore.Stored{}, s.fail(ctx, "get "+s.config.Prefix+api.KeyPath(key), err)
	}
	got := s.got(key, answer.Kvs)
	return got.Stored, got.Err
}

// got is what an answer says of one key.
func (s *Store) got(key catalog.Key, kvs []*mvccpb.KeyValue) configstore.Got {
	return configstore.GotOf("etcd", key, s.pairs(kvs))
}

// GetMany is that of configstore.ManyGetter. It asks for as many keys at once as the
// server takes.
func (s *Store) GetMany(ctx context.Context, keys []catalog.Key) ([]configstore.Got, error) {
	ctx, leave, err := s.life.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	all := make([]configstore.Got, 0, len(keys))
	for some := range slices.Chunk(keys, s.config.MaxTxnOps) {
		ops := make([]clientv3.Op, len(some))
		for i, key := range some {
			ops[i] = clientv3.OpGet(s.config.Prefix + api.KeyPath(key))
		}
		answer, err := s.commit(ctx, nil, ops, nil)
		if err != nil {
			return nil, s.fail(ctx, fmt.Sprintf("get %d objects below %s%s", len(keys), s.config.Prefix, api.KeyPrefix), err)
		}
		for i, key := range some {
			all = append(all, s.got(key, answer.Responses[i].GetResponseRange().Kvs))
		}
	}
	return all, nil
}

// List is that of configstore.Reader, of the scope.
func (s *Store) List(ctx context.Context) ([]configstore.Stored, []configstore.Refusal, error) {
	ctx, leave, err := s.life.Enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	kvs, _, err := s.everything(ctx, 0)
	if err != nil {
		return nil, nil, s.fail(ctx, "list "+s.spansText(), err)
	}
	ledger := configstore.Ledger{Prefix: s.config.Prefix}
	all := ledger.Reset(s.pairs(kvs), "")
	return all.Objects, all.Refused, nil
}
