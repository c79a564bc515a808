package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
)

// Write is that of configstore.Writer: one transaction, and so one revision. A key that
// somebody attached to a lease is detached from it: what is written here stays until it is
// deleted.
func (s *Store) Write(ctx context.Context, writes ...configstore.Write) ([]string, error) {
	ctx, leave, err := s.life.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := configstore.CheckWrites(writes); err != nil {
		return nil, fmt.Errorf("store etcd: write: %w", err)
	}
	t := transaction{store: s}
	for _, w := range writes {
		if err := t.add(w); err != nil {
			return nil, fmt.Errorf("store etcd: write: %w", err)
		}
	}
	if err := t.fits(); err != nil {
		return nil, fmt.Errorf("store etcd: write: %w", err)
	}
	if len(writes) == 0 {
		return nil, nil
	}
	answer, err := s.commit(ctx, t.conditions, t.ops, t.held)
	if err != nil {
		return nil, s.writeError(ctx, &t, err)
	}
	if !answer.Succeeded {
		return nil, s.conflict(t.conditional, answer)
	}
	revisions := make([]string, len(writes))
	for i, w := range writes {
		if w.Object != nil {
			revisions[i] = formatRevision(answer.Header.Revision)
		}
	}
	return revisions, nil
}

// commit is one transaction, in the time that a request has.
func (s *Store) commit(ctx context.Context, when []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	return s.client.Txn(ctx).If(when...).Then(then...).Else(otherwise...).Commit()
}

// transaction is writes as etcd takes them.
type transaction struct {
	store       *Store
	conditions  []clientv3.Cmp
	ops         []clientv3.Op
	conditional []configstore.Write // those with a condition
	held        []clientv3.Op       // asks for what they found, when they do not hold
	bytes       int
}

func (t *transaction) add(w configstore.Write) error {
	key := t.store.config.Prefix + api.KeyPath(w.Key())
	t.bytes += len(key)
	if w.Object == nil {
		t.ops = append(t.ops, clientv3.OpDelete(key))
	} else {
		value, err := configstore.Encode(w.Object, maxObject(t.store.config))
		if err != nil {
			return err
		}
		t.bytes += len(value)
		t.ops = append(t.ops, clientv3.OpPut(key, string(value)))
	}
	var condition clientv3.Cmp
	switch {
	case w.If == configstore.Absent:
		condition = clientv3.Compare(clientv3.ModRevision(key), "=", 0)
	case w.If != "":
		revision, err := strconv.ParseInt(w.If, 10, 64)
		if err != nil || revision <= 0 {
			revision = -1 // no key has it; what there is instead is told as for any other
		}
		condition = clientv3.Compare(clientv3.ModRevision(key), "=", revision)
	case w.Object == nil:
		condition = clientv3.Compare(clientv3.ModRevision(key), ">", 0)
	default:
		return nil
	}
	t.conditions = append(t.conditions, condition)
	t.conditional = append(t.conditional, w)
	t.held = append(t.held, clientv3.OpGet(key, clientv3.WithKeysOnly()))
	return nil
}

// fits refuses what the server would refuse, with both sizes, which the server's own error
// does not have.
func (t *transaction) fits() error {
	c := t.store.config
	if len(t.ops) > c.MaxTxnOps {
		return fmt.Errorf("%w: %d writes at once, and at most %d are made; write them in parts, or raise the servers' --max-txn-ops and set maxTxnOps", configstore.ErrTooLarge, len(t.ops), c.MaxTxnOps)
	}
	if t.bytes > c.MaxRequestBytes {
		return t.tooLarge()
	}
	return nil
}

func (t *transaction) tooLarge() error {
	return fmt.Errorf("%w: %d writes of %d bytes at once, and a request holds %d; write them in parts, or raise the servers' --max-request-bytes and set maxRequestBytes", configstore.ErrTooLarge, len(t.ops), t.bytes, t.store.config.MaxRequestBytes)
}

// conflict tells which conditions did not hold, of what a transaction found instead.
func (s *Store) conflict(writes []configstore.Write, answer *clientv3.TxnResponse) error {
	var errs []error
	for i, w := range writes {
		held := configstore.Absent
		if kvs := answer.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
			held = formatRevision(kvs[0].ModRevision)
		}
		errs = append(errs, w.CheckIf(held))
	}
	return fmt.Errorf("store etcd: write: %w", errors.Join(errs...))
}

func (s *Store) writeError(ctx context.Context, t *transaction, err error) error {
	what := fmt.Sprintf("write %d objects below %s%s", len(t.ops), s.config.Prefix, api.KeyPrefix)
	if len(t.ops) == 1 {
		what = "write " + string(t.ops[0].KeyBytes())
	}
	switch {
	case context.Cause(ctx) != nil:
		return s.fail(ctx, what, err)
	case isTooLarge(err):
		return s.fail(ctx, what, fmt.Errorf("%w (the server says: %w)", t.tooLarge(), etcdclient.Plain(err)))
	case rpctypes.Error(err) == rpctypes.ErrTooManyOps:
		return s.fail(ctx, what, fmt.Errorf("%w: %d writes at once are more than the servers' --max-txn-ops; set maxTxnOps to it, and write them in parts", configstore.ErrTooLarge, len(t.ops)))
	case rpctypes.Error(err) == rpctypes.ErrPermissionDenied:
		return s.fail(ctx, what, fmt.Errorf("%w: %w", configstore.ErrReadOnly, s.client.Explain(err)))
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded, status.Code(err) == codes.Unavailable:
		return s.fail(ctx, what, fmt.Errorf("%w; it may have been written all the same: get it before you write again", s.client.Explain(err)))
	}
	return s.fail(ctx, what, err)
}
