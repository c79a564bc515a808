package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// mostAtOnce bounds one transaction, so that others have their turn.
const mostAtOnce = 60

// write writes what is to be written until something fails. announced is called once all
// that is registered here has been.
func (s *Source) write(ctx context.Context, announced func()) error {
	// A write with a condition is a transaction within the transaction, and one more
	// within that: the server counts all of them.
	most := max(1, min(mostAtOnce, s.client.Config.MaxTxnOps/2))
	for told, as := false, false; ; {
		batch := s.own.take(most)
		if settled := s.settled.Load(); len(batch) == 0 && (!told || settled != as) {
			if err := s.announce(ctx); err != nil {
				return err
			}
			if !told {
				announced()
			}
			told, as = true, settled
		}
		if len(batch) == 0 {
			select {
			case <-s.own.wake:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := s.commit(ctx, batch); err != nil {
			s.own.again(batch)
			return err
		}
	}
}

// commit writes a batch in one transaction, each entry of it on its own condition.
func (s *Source) commit(ctx context.Context, batch []entry) error {
	timed, cancel := context.WithTimeout(ctx, s.client.Config.Timeout)
	defer cancel()
	ops := make([]clientv3.Op, len(batch))
	for i, e := range batch {
		ops[i] = s.op(e)
	}
	answer, err := s.client.Txn(timed).Then(ops...).Commit()
	if err != nil {
		return err
	}
	for i, e := range batch {
		var taken func()
		if e.fresh || made((*clientv3.TxnResponse)(answer.Responses[i].GetResponseTxn())) {
			taken = s.own.written(e, answer.Header.Revision, s.others.revision)
		} else {
			taken = s.own.lost(e, s.others.revision)
		}
		if taken != nil {
			s.takenOver(e.key, taken)
		}
	}
	return nil
}

// op writes one entry: one that is fresh over whatever stands, and any other only where
// it is ours or missing. What is deleted must be ours.
func (s *Source) op(e entry) clientv3.Op {
	key, lease := s.root+e.key, s.leaseOf(e.key)
	ours := []clientv3.Cmp{clientv3.Compare(clientv3.LeaseValue(key), "=", lease)}
	if e.held == nil {
		return clientv3.OpTxn(ours, []clientv3.Op{clientv3.OpDelete(key)}, nil)
	}
	put := clientv3.OpPut(key, encode(&e.instance, s.replica), clientv3.WithLease(clientv3.LeaseID(lease)))
	if e.fresh {
		return put
	}
	missing := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}
	return clientv3.OpTxn(ours, []clientv3.Op{put}, []clientv3.Op{clientv3.OpTxn(missing, []clientv3.Op{put}, nil)})
}

// made tells whether a write with a condition was made.
func made(answer *clientv3.TxnResponse) bool {
	if answer == nil || answer.Succeeded {
		return answer != nil
	}
	return len(answer.Responses) == 1 && answer.Responses[0].GetResponseTxn().GetSucceeded()
}

func (s *Source) takenOver(key string, taken func()) {
	s.log.Debug("a sidecar has moved to another replica", "instance", key)
	taken()
}
