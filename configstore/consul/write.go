package consul

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/consul/agent"
)

// MaxBatch is how many objects can be written at once: as many as a transaction of Consul takes,
// less the key that names them.
const MaxBatch = maxOps - 1

// MaxObject is how many bytes of JSON an object can have, by Consul's own limit for a value
// (limits.kv_max_value_size) if it was not changed.
const MaxObject = 512 << 10

// write makes all edits in one transaction, which Consul has on the disks of most of its servers
// when write returns.
func (s *Store) write(ctx context.Context, edits []configstore.Edit) (revisions []string, err error) {
	if len(edits) > MaxBatch {
		return nil, fmt.Errorf("%w: it is %d writes, and Consul takes %d at once; write them in several batches", configstore.ErrTooLarge, len(edits), MaxBatch)
	}
	select {
	case <-s.writing: // those of one process need not race each other
		defer func() { s.writing <- struct{}{} }()
		err = configstore.Rewrite(ctx, func(ctx context.Context) (err error) {
			revisions, err = s.attempt(ctx, edits)
			return err
		})
		return revisions, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// create writes a key that is not there, without a word in the head: it is no object.
func (s *Store) create(ctx context.Context, path, value string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	absent := &api.KVPair{Key: s.config.Prefix + path, Value: []byte(value)} // of ModifyIndex 0
	_, _, err := s.client.KV().CAS(absent, s.options().WithContext(ctx))
	return err
}

func (s *Store) options() *api.WriteOptions {
	return &api.WriteOptions{Namespace: s.config.Namespace, Partition: s.config.Partition}
}

// attempt reads what is there, checks that the writes may be made, and makes them if that
// is still there.
func (s *Store) attempt(ctx context.Context, edits []configstore.Edit) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	now, err := s.some(ctx, configstore.Paths(edits), &api.QueryOptions{RequireConsistent: true})
	if err != nil {
		return nil, err
	}
	held := make(map[string]uint64, len(edits))
	same := false // a value stays as it is, and with it, perhaps, its index
	for _, p := range now.pairs {
		same = same || slices.ContainsFunc(edits, func(e configstore.Edit) bool { return e.Path == p.Path && bytes.Equal(e.Value, p.Value) })
		if held[p.Path], err = strconv.ParseUint(p.Revision, 10, 64); err != nil {
			return nil, err
		}
	}
	for _, e := range edits {
		revision := configstore.Absent
		if index := held[e.Path]; index > 0 {
			revision = strconv.FormatUint(index, 10)
		}
		if err := e.CheckIf(revision); err != nil {
			return nil, err
		}
	}
	return s.commit(ctx, edits, s.operations(edits, held, now.head, !same))
}

// operations is the transaction that makes the edits. It fails if a key, or the head, is
// no longer as it was. With carry, the head has the values, which all get the index of the
// transaction: Consul gives none to a value that stays as it is.
func (s *Store) operations(edits []configstore.Edit, held map[string]uint64, h head, carry bool) api.KVTxnOps {
	var ops api.KVTxnOps
	var values [][]byte
	for _, e := range edits {
		op := &api.KVTxnOp{Verb: api.KVCAS, Key: s.config.Prefix + e.Path, Value: e.Value, Index: held[e.Path]}
		if e.Object == nil {
			op.Verb = api.KVDeleteCAS
		}
		ops = append(ops, op)
		if carry {
			values = append(values, e.Value)
		}
	}
	ops = append(ops, &api.KVTxnOp{Verb: api.KVCAS, Key: s.headKey(), Value: h.next(configstore.Paths(edits), values), Index: h.index})
	s.place(ops)
	return ops
}

func (s *Store) commit(ctx context.Context, edits []configstore.Edit, ops api.KVTxnOps) ([]string, error) {
	ok, answer, _, err := s.client.KV().Txn(ops, (&api.QueryOptions{}).WithContext(ctx))
	switch {
	case err != nil && strings.Contains(err.Error(), "too large"):
		if len(edits) == 1 && edits[0].Object != nil {
			return s.alone(ctx, edits[0], ops[0].Index)
		}
		return nil, fmt.Errorf("%w: %s; Consul says: %w; an object may be %d bytes long if it is written alone and limits.kv_max_value_size is not set; a transaction has values in base64, so write fewer objects at once, or raise limits.txn_max_req_len", configstore.ErrTooLarge, largest(edits), err, MaxObject)
	case err != nil && agent.Forbidden(err):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w; whether it was written is not known: read it again", err)
	case !ok:
		return nil, refused(s, answer.Errors)
	}
	indexes := make(map[string]uint64, len(answer.Results))
	for _, p := range answer.Results {
		indexes[p.Key] = p.ModifyIndex
	}
	revisions := make([]string, len(edits))
	for i, e := range edits {
		if e.Object != nil {
			revisions[i] = strconv.FormatUint(indexes[ops[i].Key], 10)
		}
	}
	return revisions, nil
}

// largest is the largest object of some edits, in words.
func largest(edits []configstore.Edit) string {
	most := slices.MaxFunc(edits, func(a, b configstore.Edit) int { return len(a.Value) - len(b.Value) })
	return fmt.Sprintf("%s is %d bytes long", most.Key(), len(most.Value))
}

// refused is why a transaction was not made.
func refused(s *Store, errs api.TxnErrors) error {
	denied := slices.IndexFunc(errs, func(e *api.TxnError) bool { return strings.Contains(e.What, "Permission denied") })
	if denied >= 0 {
		return fmt.Errorf("%s: %w (%w); give the token %s", errs[denied].What, configstore.ErrReadOnly, configstore.ErrDenied, policy(s, "write"))
	}
	if slices.ContainsFunc(errs, func(e *api.TxnError) bool { return strings.Contains(e.What, "index is stale") }) {
		return configstore.ErrRaced
	}
	return refusal(errs)
}

// alone writes an object that is too large for a transaction: a value by itself is sent
// as it is, so that it may be a third larger. Readers find it as they find what
// other hands wrote.
func (s *Store) alone(ctx context.Context, e configstore.Edit, index uint64) ([]string, error) {
	pair := &api.KVPair{Key: s.config.Prefix + e.Path, Value: e.Value, ModifyIndex: index}
	ok, _, err := s.client.KV().CAS(pair, s.options().WithContext(ctx))
	switch {
	case err != nil && strings.Contains(err.Error(), "too large"):
		return nil, fmt.Errorf("%w: %s; Consul says: %w", configstore.ErrTooLarge, largest([]configstore.Edit{e}), err)
	case err != nil:
		return nil, err
	case !ok:
		return nil, configstore.ErrRaced
	}
	written, _, err := s.client.KV().Get(pair.Key, consistent(ctx))
	if err != nil {
		return nil, fmt.Errorf("it is written, but its revision can't be read: %w", err)
	}
	if written == nil || string(written.Value) != string(e.Value) {
		return []string{"0"}, nil // somebody has written since: no later write is for this revision
	}
	return []string{strconv.FormatUint(written.ModifyIndex, 10)}, nil
}
