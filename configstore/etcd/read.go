package etcd

import (
	"context"
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

// some reads these paths in one transaction, and so at one revision.
func (s *Store) some(ctx context.Context, paths []string) ([]configstore.Pair, error) {
	ops := make([]clientv3.Op, len(paths))
	for i, path := range paths {
		ops[i] = clientv3.OpGet(s.config.Prefix + path)
	}
	answer, err := s.commit(ctx, nil, ops, nil)
	if err != nil {
		return nil, err
	}
	var pairs []configstore.Pair
	for _, response := range answer.Responses {
		pairs = append(pairs, s.pairs(response.GetResponseRange().Kvs)...)
	}
	return pairs, nil
}

// all reads the scope.
func (s *Store) all(ctx context.Context) ([]configstore.Pair, error) {
	kvs, _, err := s.everything(ctx, 0)
	return s.pairs(kvs), err
}
