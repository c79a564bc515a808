package etcd

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
)

// Run keeps the instances registered here written, under a lease that it keeps, until ctx ends.
// Then it returns nil, and leaves the keys to the lease. It asks a server that is away again.
func (s *Source) Run(ctx context.Context) error {
	var backoff configstore.Backoff
	for {
		var held time.Time
		err := writer{s}.hold(ctx, func() { held = time.Now() })
		if ctx.Err() != nil {
			return nil
		}
		s.writing(err)
		if !backoff.Wait(ctx, err, held) {
			return nil
		}
	}
}

// writer writes what is registered here. Run has it.
type writer struct{ *Source }

// hold gets the lease, and keeps it and what is written under it until something fails.
func (w writer) hold(ctx context.Context, holds func()) error {
	w.client.Retry()
	made, granted := w.leases.grant(ctx)
	if made {
		w.registered.rewriteAll()
	}
	if granted != nil && rpctypes.Error(granted) != rpctypes.ErrNoSpace {
		return w.fail(ctx, "get a lease for", granted)
	}
	holds()
	group, inside := errgroup.WithContext(ctx)
	group.Go(func() error {
		err := w.leases.keepAlive(inside, w.registered.wakeWriter) // what it has in common with others may have changed
		w.client.Forget()
		if granted != nil && errors.Is(err, errLapsed) {
			err = granted // a server that is full gives none, and keeps those that it has given
		}
		return w.fail(inside, "keep the lease of", err)
	})
	group.Go(func() error { return w.keepWriting(inside) })
	return group.Wait()
}

// keepWriting writes until ctx ends or a lease is missing. A server that takes nothing,
// since it is full, is no reason to let leases run out, and with them what was written before.
func (w writer) keepWriting(ctx context.Context) error {
	var backoff configstore.Backoff
	for {
		var begun time.Time
		err := w.write(ctx, func() {
			begun = time.Now()
			w.writing(nil)
		})
		missing := rpctypes.Error(err) == rpctypes.ErrLeaseNotFound
		err = w.fail(ctx, "write", err)
		if missing || ctx.Err() != nil {
			return err
		}
		w.writing(err)
		w.client.Forget()
		if !backoff.Wait(ctx, err, begun) {
			return ctx.Err()
		}
	}
}

// announce says that this replica is there, and all that is registered with it is written:
// see replicated.reset.
func (w writer) announce(ctx context.Context, text string) error {
	timed, cancel := context.WithTimeout(ctx, w.client.Config.Timeout)
	defer cancel()
	key := w.root + replicas + strconv.FormatInt(w.leases.first, 16)
	_, err := w.client.Put(timed, key, text, clientv3.WithLease(clientv3.LeaseID(w.leases.first)))
	return err
}

// Settle tells other replicas that this one knows all instances: theirs, and its own sidecars,
// which have had the time to register.
func (s *Source) Settle() {
	s.settled.Store(true)
	s.registered.wakeWriter()
}

// mostAtOnce bounds one transaction, so that others have their turn.
const mostAtOnce = 60

// write writes what is to be written until something fails. announced is called once all
// that is registered here has been.
func (w writer) write(ctx context.Context, announced func()) error {
	// A write with a condition is a transaction within the transaction, and one more
	// within that: the server counts all of them.
	most := max(1, min(mostAtOnce, w.client.Config.MaxTxnOps/2))
	for told := ""; ; {
		if batch := w.registered.take(most); len(batch) > 0 {
			if err := w.commit(ctx, batch); err != nil {
				w.registered.requeue(batch)
				return err
			}
			continue
		}
		if text := w.self().encode(); text != told {
			if err := w.announce(ctx, text); err != nil {
				return err
			}
			if told == "" {
				announced()
			} else {
				_ = w.tell(instances.Change{}) // of who differs by now; an error is that of who watches
			}
			told = text
		}
		select {
		case <-w.registered.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// commit writes a batch in one transaction, each entry of it on its own condition.
func (w writer) commit(ctx context.Context, batch []entry) error {
	timed, cancel := context.WithTimeout(ctx, w.client.Config.Timeout)
	defer cancel()
	ops := make([]clientv3.Op, len(batch))
	for i, e := range batch {
		ops[i] = w.op(e)
	}
	answer, err := w.client.Txn(timed).Then(ops...).Commit()
	if err != nil {
		return err
	}
	for i, e := range batch {
		var taken func()
		did := (*clientv3.TxnResponse)(answer.Responses[i].GetResponseTxn())
		switch {
		case e.unwritten || made(did):
			taken = w.registered.written(e, answer.Header.Revision, w.replicated.revision)
		case e.restored:
			taken = w.registered.foundOther(e, standing(w.root, e.key, did), w.replica, w.replicated.revision)
		default:
			taken = w.registered.heldByOther(e, w.replicated.revision)
		}
		if taken != nil {
			w.takenOver(e.key, taken)
		}
	}
	return nil
}

// standing is what a write found under its key instead of what it was to be written over.
func standing(root, key string, did *clientv3.TxnResponse) pair {
	if did != nil && len(did.Responses) == 1 {
		if kvs := did.Responses[0].GetResponseRange().GetKvs(); len(kvs) == 1 {
			return pairOf(root, kvs[0])
		}
	}
	return pair{key: key, deleted: true}
}

// op writes one entry: one that is unwritten over whatever stands, one that is restored over
// what it was found to be newer than, and any other only where it is ours or missing. What
// is deleted must be ours.
func (w writer) op(e entry) clientv3.Op {
	key, lease := w.root+e.key, w.leases.of(e.key)
	ours := []clientv3.Cmp{clientv3.Compare(clientv3.LeaseValue(key), "=", lease)}
	if e.held == nil {
		return clientv3.OpTxn(ours, []clientv3.Op{clientv3.OpDelete(key)}, nil)
	}
	put := clientv3.OpPut(key, encode(&e.instance, w.replica), clientv3.WithLease(clientv3.LeaseID(lease)))
	if e.unwritten {
		return put
	}
	if e.restored {
		older := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", e.over)}
		return clientv3.OpTxn(older, []clientv3.Op{put}, []clientv3.Op{clientv3.OpGet(key)})
	}
	missing := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}
	return clientv3.OpTxn(ours, []clientv3.Op{put}, []clientv3.Op{clientv3.OpTxn(missing, []clientv3.Op{put}, nil)})
}

// made tells whether a write with a condition was made.
func made(answer *clientv3.TxnResponse) bool {
	if answer == nil || answer.Succeeded {
		return answer != nil
	}
	return len(answer.Responses) == 1 && answer.Responses[0].GetResponseTxn() != nil && answer.Responses[0].GetResponseTxn().GetSucceeded()
}

func (s *Source) takenOver(key string, taken func()) {
	s.log.Debug("a sidecar has moved to another replica", "instance", key)
	taken()
}
