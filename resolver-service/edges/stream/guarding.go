package stream

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// access is what a stream sends of who may call the app.
type access struct {
	sent        *catalog.Access
	provisional bool   // what was sent
	known       []byte // digest of what the client has from before; empty once something is sent
}

// followAccess sends who may call the app and whether its calls are looked at, and each change of it,
// until the stream ends. It begins after the first message about the view.
func (w *watch) followAccess(ctx context.Context) error {
	select {
	case <-w.viewed:
	case <-ctx.Done():
		return nil
	}
	sub, err := w.s.topology.Access(ctx, w.hello.app)
	if err != nil {
		return unavailable(err)
	}
	defer sub.Close()
	a := access{known: w.hello.access}
	settled := w.s.settling.Done()
	for {
		provisional := w.s.settling.Err() == nil // must be read before the value
		value, ok, changed := sub.Follow()
		// A client that knows something from before keeps it until the service knows as much.
		if ok && (!provisional || len(a.known) == 0) && (value != a.sent || provisional != a.provisional) {
			if err := w.sendAccess(ctx, &a, value, provisional); err != nil {
				return err
			}
		}
		if err := w.sendTap(); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-w.retap:
		case <-settled:
			settled = nil
		case <-ctx.Done():
			return nil
		}
	}
}

// sendAccess sends the difference to what was sent last, or to what the client has from before.
func (w *watch) sendAccess(ctx context.Context, a *access, to *catalog.Access, provisional bool) error {
	from := a.sent
	if len(a.known) > 0 && wire.SameAccess(a.known, to) {
		from = to
	}
	var free func()
	if from == nil {
		if n := int64(to.Declared.Len()+to.Undeclared.Len()+len(to.Remote.All())) * nameBytes; n > uncountedBytes {
			ctx, cancel := context.WithTimeout(ctx, w.s.cfg.StallTimeout)
			defer cancel()
			var err error
			if free, err = w.s.messages.Acquire(ctx, w.client, n); err != nil {
				return status.Error(codes.Unavailable, "too many clients are being sent who may call them; reconnect")
			}
		}
	}
	m := wire.Access(from, to)
	m.Provisional = provisional
	encoded, err := proto.Marshal(&pb.WatchResponse{Access: m})
	if err != nil {
		return status.Errorf(codes.Internal, "encode who may call %s: %v", w.hello.app, err)
	}
	w.sending.Lock()
	defer w.sending.Unlock()
	if err := w.inFlight.send(&prepared{encoded: encoded, holders: 1, uncount: free}, w.stream.SendMsg, nil); err != nil {
		return err
	}
	*a = access{sent: to, provisional: provisional}
	w.s.metrics.bytes.Add(float64(len(encoded)))
	return nil
}
