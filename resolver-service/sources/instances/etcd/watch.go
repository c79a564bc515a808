package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
)

// mostKeys is how many keys are read.
const mostKeys = 2 * instances.DefaultMaxInstances

// errEmit is an error of who watches, not of the server.
type errEmit struct{ error }

// Watch is that of instances.Source.
func (s *Source) Watch(ctx context.Context, emit func(instances.Change) error) error {
	s.tellTo(func(c instances.Change) error {
		if err := emit(c); err != nil {
			return errEmit{err}
		}
		return nil
	})
	err := s.follow(ctx)
	s.tellTo(nil)
	s.client.Forget()
	var emitted errEmit
	if errors.As(err, &emitted) {
		return emitted.error
	}
	return s.fail(ctx, "watch", err)
}

// follow reads everything, and then what comes on a stream of what happened after that.
func (s *Source) follow(ctx context.Context) error {
	s.client.Retry()
	pairs, header, err := s.everything(ctx)
	if err != nil {
		return err
	}
	if err := s.reset(pairs, header.Revision); err != nil {
		return err
	}
	// What stands without its replica goes in time, whether anything else comes or not.
	late := time.AfterFunc(s.leases.ttl, func() {
		s.news.Lock()
		defer s.news.Unlock()
		if c := s.replicated.expire(time.Now()); len(c.Delete) > 0 {
			_ = s.tell(c) // an error shows with the next
		}
	})
	defer late.Stop()
	// What our previous run wrote has gone by then.
	later := time.AfterFunc(2*s.leases.ttl, func() {
		s.replicated.previousRunEnded()
		_ = s.tell(instances.Change{}) // an error shows with the next
	})
	defer later.Stop()
	return s.stream(ctx, header)
}

// reset takes everything in. What has moved is let go of here only after it was told to be
// elsewhere.
func (s *Source) reset(pairs []pair, revision int64) error {
	s.news.Lock()
	err := s.tell(s.replicated.reset(pairs, s.leases.first, time.Now(), s.leases.ttl))
	s.news.Unlock()
	if err != nil {
		return err
	}
	there := make(map[string]*pair, len(pairs))
	for i := range pairs {
		there[pairs[i].key] = &pairs[i]
	}
	for _, key := range s.registered.keys() {
		switch p := there[key]; {
		case p == nil:
			s.missing(key, revision)
		case p.lease != s.leases.first:
			s.overwritten(*p)
		}
	}
	return nil
}

// overwritten looks whether a sidecar of ours has moved.
func (s *Source) overwritten(p pair) {
	if taken := s.registered.overwritten(p, s.replica); taken != nil {
		s.takenOver(p.key, taken)
	}
}

// missing has a key written that should be there.
func (s *Source) missing(key string, revision int64) {
	if taken := s.registered.missing(key, revision); taken != nil {
		s.takenOver(key, taken)
	}
}

// everything reads all keys as they are at one revision.
func (s *Source) everything(ctx context.Context) (pairs []pair, header *pb.ResponseHeader, err error) {
	for page, err := range s.client.Pages(ctx, s.root, clientv3.GetPrefixRangeEnd(s.root), 0) {
		if err != nil {
			return nil, nil, err
		}
		if header == nil {
			header = page.Header
		}
		for _, kv := range page.Kvs {
			pairs = append(pairs, pairOf(s.root, kv))
		}
		if len(pairs) > mostKeys {
			return nil, nil, fmt.Errorf("there are more than %d keys, which is as many as are read; delete those that no replica wrote", mostKeys)
		}
	}
	return pairs, header, nil
}

func pairOf(root string, kv *mvccpb.KeyValue) pair {
	return pair{key: strings.TrimPrefix(string(kv.Key), root), value: kv.Value, lease: replicaOf(kv.Lease), revision: kv.ModRevision}
}

// stream follows what happens after what a header tells of. The error is never nil.
func (s *Source) stream(ctx context.Context, begin *pb.ResponseHeader) error {
	all := &pb.WatchCreateRequest{
		Key: []byte(s.root), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(s.root)),
		StartRevision: begin.Revision + 1, Fragment: true,
	}
	return s.client.Follow(ctx, begin, []*pb.WatchCreateRequest{all}, func(_ pb.Watch_WatchClient, response *pb.WatchResponse) error {
		return s.take(response, begin)
	})
}

// take takes in one response of the stream.
func (s *Source) take(response *pb.WatchResponse, begin *pb.ResponseHeader) error {
	pairs := make([]pair, 0, len(response.Events))
	for _, event := range response.Events {
		if event.Kv.ModRevision <= begin.Revision {
			continue // not asked for; some servers send it all the same
		}
		p := pairOf(s.root, event.Kv)
		p.deleted = event.Type == mvccpb.DELETE
		pairs = append(pairs, p)
	}
	if err := s.apply(pairs); err != nil {
		return err
	}
	for _, p := range pairs {
		switch {
		case p.deleted:
			s.missing(p.key, p.revision)
		case p.lease != s.leases.first:
			s.overwritten(p)
		}
	}
	return nil
}

// apply takes in what has changed of others, and tells it.
func (s *Source) apply(pairs []pair) error {
	s.news.Lock()
	defer s.news.Unlock()
	c := s.replicated.apply(pairs, s.leases.first)
	if len(c.Put)+len(c.Delete) == 0 && !s.replicated.refusing() {
		return nil // of what is ours
	}
	return s.tell(c)
}
