package consul

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"

	isthmus "github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/consul/agent"
)

// maxOps is how many operations Consul takes in a transaction.
const maxOps = 128

// snapshot is some keys of Consul at one moment.
type snapshot struct {
	pairs   []configstore.Pair // what is there
	missing []string           // paths that were asked for and are not there
	head    head
	index   uint64 // of the whole prefix, where that was asked for
}

// add takes a pair of Consul's into the snapshot.
func (s *snapshot) add(store *Store, p *api.KVPair) {
	if p.Key == store.headKey() {
		s.head = parseHead(p.ModifyIndex, p.Value)
		return
	}
	path := strings.TrimPrefix(p.Key, store.config.Prefix)
	if p.CreateIndex == 0 { // get-or-empty
		s.missing = append(s.missing, path)
		return
	}
	s.pairs = append(s.pairs, configstore.Pair{Path: path, Value: p.Value, Revision: strconv.FormatUint(p.ModifyIndex, 10)})
}

// readAll reads all objects.
func (s *Store) readAll(ctx context.Context) (snapshot, error) {
	var all snapshot
	pairs, meta, err := s.client.KV().List(s.base(), consistent(ctx))
	if err != nil {
		return all, err
	}
	if err := agent.Believe(meta); err != nil {
		return all, err
	}
	all.pairs = make([]configstore.Pair, 0, len(pairs))
	for _, p := range pairs {
		all.add(s, p)
	}
	all.index = meta.LastIndex
	if all.head.index > 0 {
		return all, nil
	}
	// A list of what may not be read is an empty list, and who has no token is not told.
	// To ask for one key is to be refused.
	_, _, err = s.client.KV().Get(s.headKey(), consistent(ctx))
	return all, err
}

// some reads the head and these paths, at most maxOps-1, at one moment.
func (s *Store) some(ctx context.Context, paths []string, options *api.QueryOptions) (snapshot, error) {
	return s.named(ctx, append([]string{isthmus.KeyPrefix + headName}, paths...), options)
}

// named reads these paths, at most maxOps, at one moment.
func (s *Store) named(ctx context.Context, paths []string, options *api.QueryOptions) (snapshot, error) {
	pairs, err := s.transaction(ctx, s.get(paths...), options)
	if err != nil {
		return snapshot{}, err
	}
	var found snapshot
	for _, p := range pairs {
		found.add(s, p)
	}
	if len(pairs) != len(paths) {
		return snapshot{}, agent.ErrHidden
	}
	return found, nil
}

// readScope reads what the scope of one app has, at one moment.
func (s *Store) readScope(ctx context.Context) (snapshot, error) {
	ops := append(s.get(isthmus.KeyPath(s.scope.Selection()), clustersPath), &api.KVTxnOp{Verb: api.KVGetTree, Key: s.clusters()})
	pairs, err := s.transaction(ctx, ops, consistent(ctx))
	if err != nil {
		return snapshot{}, err
	}
	var found snapshot
	var selection, clusters bool // may be read: an answer came, even if it is that there is none
	for _, p := range pairs {
		switch {
		case p.Key == s.selection():
			selection = true
		case p.Key == s.clusters() && !clusters:
			clusters = true // of what is there, the tree comes with it once more
			continue
		}
		found.add(s, p)
	}
	if !selection || !clusters {
		return snapshot{}, agent.ErrHidden
	}
	return found, nil
}

// get is the operations that get these paths.
func (s *Store) get(paths ...string) api.KVTxnOps {
	ops := make(api.KVTxnOps, len(paths))
	for i, path := range paths {
		ops[i] = &api.KVTxnOp{Verb: api.KVGetOrEmpty, Key: s.config.Prefix + path}
	}
	return ops
}

// transaction reads. What may not be read is not among the pairs.
func (s *Store) transaction(ctx context.Context, ops api.KVTxnOps, options *api.QueryOptions) ([]*api.KVPair, error) {
	s.place(ops)
	ok, answer, _, err := s.client.KV().Txn(ops, options.WithContext(ctx))
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, refusal(answer.Errors)
	}
	return answer.Results, nil
}

// place puts operations in the namespace and the partition of the settings.
func (s *Store) place(ops api.KVTxnOps) {
	for _, op := range ops {
		op.Namespace, op.Partition = s.config.Namespace, s.config.Partition
	}
}

func refusal(errs api.TxnErrors) error {
	if len(errs) == 0 {
		return errors.New("the transaction was refused, and no reason given")
	}
	return errors.New(errs[0].What)
}

// selection is the key of the own AppEndpoints of the scope's app.
func (s *Store) selection() string {
	return s.config.Prefix + isthmus.KeyPath(s.scope.Selection())
}

// pairs is those of these paths that are there, at one moment.
func (s *Store) pairs(ctx context.Context, paths []string) ([]configstore.Pair, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := s.named(ctx, paths, &api.QueryOptions{RequireConsistent: true})
	return found.pairs, err
}

// all is every pair.
func (s *Store) all(ctx context.Context) ([]configstore.Pair, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	found, err := s.readAll(ctx)
	return found.pairs, err
}
