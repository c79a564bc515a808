package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// silent is a stream to a server that does not say how far it has told everything.
type silent struct{ grpc.ClientStream }

func (silent) Send(*pb.WatchRequest) error      { return nil }
func (silent) Recv() (*pb.WatchResponse, error) { return nil, context.Canceled }

// event is a response with one key put at a revision.
func event(key string, revision int64, more bool) *pb.WatchResponse {
	return &pb.WatchResponse{
		Header: &pb.ResponseHeader{ClusterId: 1, RaftTerm: 1, Revision: revision}, WatchId: watchID(0), Fragment: more,
		Events: []*mvccpb.Event{{Type: mvccpb.PUT, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: revision}}},
	}
}

func TestHalfATransactionIsNotTakenHoweverLongTheRestTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pending := configstore.NewPending()
		r := newReceiver(&Store{}, pending, place{cluster: 1, term: 1, revision: 5}, 7)
		defer r.finish()
		take := func(response *pb.WatchResponse) {
			t.Helper()
			if err := r.take(silent{}, response); err != nil {
				t.Fatal(err)
			}
		}
		wait := func() {
			time.Sleep(3 * mostAsked * progressEvery)
			synctest.Wait()
		}
		take(&pb.WatchResponse{Header: &pb.ResponseHeader{ClusterId: 1, RaftTerm: 1, Revision: 7}, WatchId: watchID(0), Created: true})
		take(event("a", 7, true))
		wait()
		if put, _, at := pending.Take(); len(put) > 0 {
			t.Errorf("half a transaction was taken, %v at %s; a reader that goes on from there never hears of the rest", put, at)
		}
		take(event("b", 7, false))
		wait()
		if put, _, at := pending.Take(); len(put) != 2 || at == "" {
			t.Errorf("taken %v at %q; want both keys", put, at)
		}
	})
}

// streamless is a server behind a proxy that lets requests through, and keeps streams.
type streamless struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
}

func (*streamless) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: 1, RaftTerm: 1, Revision: 7}}, nil
}

func (*streamless) Watch(s pb.Watch_WatchServer) error {
	<-s.Context().Done()
	return s.Context().Err()
}

func TestAStreamThatIsNotAnsweredIsSaidToBe(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterKVServer(server, &streamless{})
	pb.RegisterWatchServer(server, &streamless{})
	done := make(chan error)
	go func() { done <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		<-done
	}()
	c := Config{Endpoints: []string{listener.Addr().String()}, Timeout: time.Second}
	s, err := Open(c, configstore.Scope{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	eventually(t, func() error { // on a busy machine what is asked before may be what is not answered in time
		err := s.Watch(t.Context(), "", func(configstore.Change) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "open a stream: no answer within 1s; does a proxy") {
			return fmt.Errorf("a stream that is not answered: %v", err)
		}
		return nil
	})
}
