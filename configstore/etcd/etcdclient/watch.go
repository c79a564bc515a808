package etcdclient

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrAnew says that the server can't tell the changes any more: it has compacted its history, or is
// another than it was. Everything has to be read anew.
var ErrAnew = errors.New("the server can't tell what has changed since")

var errNoStream = errors.New("open a stream: no answer")

// Follow opens a stream with some watches and hands over each response, until the stream ends
// or take fails. The error is never nil. read is the header of the answer that the watches go
// on from: a server of another cluster or term ends the stream. take may send on the stream.
//
// Follow works below the client library's watcher, which comes back by itself and says nothing
// of it: so nobody would know that etcd is away.
func (c *Client) Follow(ctx context.Context, read *pb.ResponseHeader, watches []*pb.WatchCreateRequest, take func(pb.Watch_WatchClient, *pb.WatchResponse) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(c.Config.Timeout, func() { cancel(errNoStream) })
	defer patience.Stop()
	// The server ends the stream when its member is cut off from the majority.
	stream, err := pb.NewWatchClient(c.ActiveConnection()).Watch(clientv3.WithRequireLeader(ctx), grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		return err
	}
	for _, w := range watches {
		// An error of Send is told by Recv.
		_ = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: w}})
	}
	for created := 0; ; {
		response, err := stream.Recv()
		switch {
		case err != nil && created == len(watches):
			return err
		case err != nil && errors.Is(context.Cause(ctx), errNoStream):
			return fmt.Errorf("%w within %s; does a proxy in between let streams of gRPC through?", errNoStream, c.Config.Timeout)
		case err != nil:
			return fmt.Errorf("open a stream: %w", err)
		case response.Canceled:
			return canceled(response)
		case response.Created:
			if now := response.Header; now.ClusterId != read.ClusterId || now.RaftTerm != read.RaftTerm {
				return fmt.Errorf("the server has changed while it was read: cluster %x in term %d, and then %x in term %d; everything is read anew at the next try",
					read.ClusterId, read.RaftTerm, now.ClusterId, now.RaftTerm)
			}
			if created++; created == len(watches) {
				patience.Stop()
			}
		}
		if err := take(stream, response); err != nil {
			return err
		}
	}
}

func canceled(response *pb.WatchResponse) error {
	switch {
	case response.CompactRevision > 0:
		return fmt.Errorf("%w: it has compacted its history up to revision %d", ErrAnew, response.CompactRevision)
	case response.CancelReason == "":
		return errors.New("the server has ended the watch without a reason")
	}
	return rpctypes.Error(status.Error(codes.Unknown, response.CancelReason))
}
