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

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
)

// write makes edits in one transaction, and so at one revision. A key that somebody attached to a
// lease is detached from it: what is written here stays until it is deleted.
func (s *Store) write(ctx context.Context, edits []configstore.Edit) ([]string, error) {
	t := transaction{config: s.config}
	for _, e := range edits {
		t.add(e)
	}
	if err := t.fits(); err != nil {
		return nil, err
	}
	answer, err := s.commit(ctx, t.conditions, t.ops, t.held)
	if err != nil {
		return nil, s.writeError(&t, err)
	}
	if !answer.Succeeded {
		return nil, conflict(t.conditional, answer)
	}
	revisions := make([]string, len(edits))
	for i, e := range edits {
		if e.Object != nil {
			revisions[i] = formatRevision(answer.Header.Revision)
		}
	}
	return revisions, nil
}

// create writes a key that is not there.
func (s *Store) create(ctx context.Context, path, value string) error {
	key := s.config.Prefix + path
	_, err := s.commit(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", 0)}, []clientv3.Op{clientv3.OpPut(key, value)}, nil)
	return err
}

// commit is one transaction, in the time that a request has.
func (s *Store) commit(ctx context.Context, when []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	return s.client.Txn(ctx).If(when...).Then(then...).Else(otherwise...).Commit()
}

// transaction is writes as etcd takes them.
type transaction struct {
	config      Config
	conditions  []clientv3.Cmp
	ops         []clientv3.Op
	conditional []configstore.Edit // those with a condition
	held        []clientv3.Op      // asks for what they found, when they do not hold
	bytes       int
}

func (t *transaction) add(e configstore.Edit) {
	key := t.config.Prefix + e.Path
	t.bytes += len(key) + len(e.Value)
	if e.Object == nil {
		t.ops = append(t.ops, clientv3.OpDelete(key))
	} else {
		t.ops = append(t.ops, clientv3.OpPut(key, string(e.Value)))
	}
	var condition clientv3.Cmp
	switch {
	case e.If == configstore.Absent:
		condition = clientv3.Compare(clientv3.ModRevision(key), "=", 0)
	case e.If != "":
		revision, err := strconv.ParseInt(e.If, 10, 64)
		if err != nil || revision <= 0 {
			revision = -1 // no key has it; what there is instead is told as for any other
		}
		condition = clientv3.Compare(clientv3.ModRevision(key), "=", revision)
	case e.Object == nil:
		condition = clientv3.Compare(clientv3.ModRevision(key), ">", 0)
	default:
		return
	}
	t.conditions = append(t.conditions, condition)
	t.conditional = append(t.conditional, e)
	t.held = append(t.held, clientv3.OpGet(key, clientv3.WithKeysOnly()))
}

// fits refuses what the server would refuse, with both sizes, which the server's own error
// does not have.
func (t *transaction) fits() error {
	c := t.config
	if len(t.ops) > c.MaxTxnOps {
		return fmt.Errorf("%w: %d writes at once, and at most %d are made; write them in parts, or raise the servers' --max-txn-ops and set maxTxnOps", configstore.ErrTooLarge, len(t.ops), c.MaxTxnOps)
	}
	if t.bytes > c.MaxRequestBytes {
		return t.tooLarge()
	}
	return nil
}

func (t *transaction) tooLarge() error {
	return fmt.Errorf("%w: %d writes of %d bytes at once, and a request holds %d; write them in parts, or raise the servers' --max-request-bytes and set maxRequestBytes", configstore.ErrTooLarge, len(t.ops), t.bytes, t.config.MaxRequestBytes)
}

// conflict tells which conditions did not hold, of what a transaction found instead.
func conflict(writes []configstore.Edit, answer *clientv3.TxnResponse) error {
	var errs []error
	for i, w := range writes {
		held := configstore.Absent
		if kvs := answer.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
			held = formatRevision(kvs[0].ModRevision)
		}
		errs = append(errs, w.CheckIf(held))
	}
	return errors.Join(errs...)
}

func (s *Store) writeError(t *transaction, err error) error {
	switch {
	case isTooLarge(err):
		return fmt.Errorf("%w (the server says: %w)", t.tooLarge(), etcdclient.Plain(err))
	case rpctypes.Error(err) == rpctypes.ErrTooManyOps:
		return fmt.Errorf("%w: %d writes at once are more than the servers' --max-txn-ops; set maxTxnOps to it, and write them in parts", configstore.ErrTooLarge, len(t.ops))
	case rpctypes.Error(err) == rpctypes.ErrPermissionDenied:
		return fmt.Errorf("%w: %w", configstore.ErrReadOnly, s.client.Explain(err))
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded, status.Code(err) == codes.Unavailable:
		return fmt.Errorf("%w; it may have been written all the same: get it before you write again", s.client.Explain(err))
	}
	return err
}
