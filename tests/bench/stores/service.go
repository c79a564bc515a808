package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isthmus-mesh/isthmus/api"
	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// service is a running "isthmus serve", and how soon it was ready.
type service struct {
	*sandbox.Process
	address string
	ready   time.Duration // from the start of the process until /readyz said so
}

// startService starts the service on a store, with nothing in its data directory but
// what the store keeps there itself.
func startService(ctx context.Context, dir string, store map[string]any) (*service, error) {
	binary, err := sandbox.Binary("isthmus")
	if err != nil {
		return nil, err
	}
	dir, err = os.MkdirTemp(dir, "service-")
	if err != nil {
		return nil, err
	}
	box, err := sandbox.New(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	written, err := box.NewService(sandbox.ServiceOptions{Cluster: cluster, Store: maps.Clone(store)})
	if err != nil {
		return nil, err
	}
	s := &service{address: written.Resolver}
	began := time.Now()
	s.Process, err = sandbox.Start(sandbox.Command{
		Name: "isthmus", Path: binary, Args: []string{"serve", "-c", written.Config}, LogDir: dir,
	})
	if err != nil {
		return nil, err
	}
	err = measure.Await(ctx, "the service is ready", 2*time.Millisecond, func() error { return ready(ctx, written.Admin) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w; its log ends:\n%s", err, s.Tail(10)), s.Kill())
	}
	s.ready = time.Since(began)
	return s, nil
}

func ready(ctx context.Context, admin string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
}

func (s *service) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), measure.Patience)
	defer cancel()
	return s.Stop(ctx)
}

// applier writes as "isthmus apply" does: through a service.
type applier struct{ conn *grpc.ClientConn }

func newApplier(address string) (applier, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	return applier{conn}, err
}

func (a applier) put(ctx context.Context, object catalog.Object) error {
	_, err := pb.NewObjectsClient(a.conn).Apply(ctx, &pb.ApplyRequest{Objects: []*pb.ApplyObject{{Json: api.EncodeJSON(object)}}})
	return err
}

// objects is how many objects lookups follow, by the service's own word. There is none
// that is refused.
func (a applier) objects(ctx context.Context) (int, error) {
	status, err := pb.NewStatusClient(a.conn).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return 0, err
	}
	for _, refused := range status.GetRefused() {
		return 0, fmt.Errorf("the service refuses %s: %s", refused.GetSource(), refused.GetError())
	}
	return int(status.GetObjects()), nil
}
