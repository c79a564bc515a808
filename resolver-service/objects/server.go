// Package objects reads and writes the objects of the config store for operators, and feeds them
// to the topology.
package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects/analysis"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Config describes this service's own cluster.
type Config struct {
	Cluster string
	Domain  catalog.Domain
	Store   string // name of the store in errors
	// PreferZone tells whether callers prefer their own zone by default.
	PreferZone bool
	Service    analysis.Service
}

// Server is the service Objects. The gRPC server checks the callers.
type Server struct {
	v1alpha1.UnimplementedObjectsServer
	cfg      Config
	store    configstore.Writer // nil: read only
	feed     *Feed
	topology *topology.Topology
	log      *slog.Logger
}

// NewServer makes a server. A nil store is read-only: objects then come from the feed.
func NewServer(cfg Config, store configstore.Writer, feed *Feed, t *topology.Topology, log *slog.Logger) *Server {
	return &Server{cfg: cfg, store: store, feed: feed, topology: t, log: log}
}

// Apply writes all objects or none, and answers once lookups follow.
func (s *Server) Apply(ctx context.Context, req *v1alpha1.ApplyRequest) (*v1alpha1.ApplyResponse, error) {
	writes, err := s.decode(req.GetObjects())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return s.change(ctx, writes, applyOptions{req.GetDryRun(), req.GetWithHeld(), req.GetInParts()})
}

// Delete deletes all objects or none, and answers once lookups follow.
func (s *Server) Delete(ctx context.Context, req *v1alpha1.DeleteRequest) (*v1alpha1.ApplyResponse, error) {
	revisions := req.GetIfRevisions()
	if len(revisions) == 0 {
		revisions = make([]string, len(req.GetKeys()))
	}
	if len(revisions) != len(req.GetKeys()) {
		return nil, status.Errorf(codes.InvalidArgument, "%d if_revisions for %d keys; want one for each, or none", len(revisions), len(req.GetKeys()))
	}
	var writes []configstore.Write
	for i, k := range req.GetKeys() {
		key := wire.KeyOf(k)
		if err := api.CheckKey(key); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "%s: %v", key, err)
		}
		if stored, derived := s.feed.derived(key); derived {
			return nil, status.Errorf(codes.FailedPrecondition, "%s is derived %s; change or delete that", key, stored.Object.Origin())
		}
		writes = append(writes, configstore.Write{Delete: key, If: revisions[i]})
	}
	return s.change(ctx, writes, applyOptions{req.GetDryRun(), req.GetWithHeld(), req.GetInParts()})
}

// Get returns the objects that a key selects.
func (s *Server) Get(ctx context.Context, req *v1alpha1.GetRequest) (*v1alpha1.GetResponse, error) {
	key := wire.KeyOf(req.GetKey())
	if key.Name == "" && req.GetInForce() {
		return s.inForce(key, req), nil
	}
	var stored []configstore.Stored
	var err error
	if key.Name != "" {
		if err := api.CheckKey(key); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "%s: %v", key, err)
		}
		stored, err = s.one(ctx, key)
	} else {
		stored, err = s.list(ctx, key)
	}
	answer := &v1alpha1.GetResponse{}
	if err != nil {
		if standing, ok := s.standing(key, err); ok {
			answer.Objects = append(answer.Objects, standing)
			return answer, nil
		}
		return nil, s.explain(err)
	}
	for _, o := range stored {
		answer.Objects = append(answer.Objects, storedToWire(o))
	}
	if key.Name == "" && s.store != nil {
		err = s.addStanding(ctx, key, stored, answer)
	}
	return answer, err
}

func (s *Server) one(ctx context.Context, key catalog.Key) ([]configstore.Stored, error) {
	if s.store != nil {
		stored, err := s.store.Get(ctx, key)
		if derived, ok := s.feed.derived(key); ok && errors.Is(err, configstore.ErrNotFound) {
			stored, err = derived, nil
		}
		return []configstore.Stored{stored}, err
	}
	for _, stored := range s.feed.all() {
		if stored.Object.Key() == key {
			return []configstore.Stored{stored}, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", key, configstore.ErrNotFound)
}

// list returns the objects that a key without a name selects.
func (s *Server) list(ctx context.Context, want catalog.Key) ([]configstore.Stored, error) {
	all := s.feed.all()
	if s.store != nil {
		derived := slices.DeleteFunc(all, func(s configstore.Stored) bool { return s.Object.Origin().From == "" })
		var err error
		if all, _, err = s.store.List(ctx); err != nil {
			return nil, err
		}
		all = append(all, derived...)
		slices.SortStableFunc(all, func(a, b configstore.Stored) int { return a.Object.Key().Compare(b.Object.Key()) })
		all = slices.CompactFunc(all, func(a, b configstore.Stored) bool { return a.Object.Key() == b.Object.Key() })
	}
	var some []configstore.Stored
	for _, stored := range all {
		if selects(want, stored.Object.Key()) {
			some = append(some, stored)
		}
	}
	return some, nil
}

// decode reads the objects to write. The error has a line for each mistake.
func (s *Server) decode(objects []*v1alpha1.ApplyObject) ([]configstore.Write, error) {
	clusters, _ := s.feed.Clusters().Load()
	var mistakes []error
	writes := make([]configstore.Write, 0, len(objects))
	for i, o := range objects {
		key, revision, err := headOf(o.GetJson())
		if err == nil && revision != "" && o.GetIfRevision() != "" && revision != o.GetIfRevision() {
			err = fmt.Errorf("if_revision is %q, and its own metadata.revision %q; keep one of them", o.GetIfRevision(), revision)
		}
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("object %d of %d: %w", i+1, len(objects), err))
			continue
		}
		object, err := api.DecodeJSON(api.KeyPath(key), o.GetJson())
		if err == nil {
			err = CheckHosts(s.cfg.Domain, s.cfg.Cluster, clusters, object)
		}
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		writes = append(writes, configstore.Write{Object: object, If: cmp.Or(o.GetIfRevision(), revision)})
	}
	return writes, errors.Join(mistakes...)
}

// explain converts a store's error to a gRPC status that a caller can act on.
func (s *Server) explain(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Internal
	for _, known := range []struct {
		err  error
		code codes.Code
	}{
		{configstore.ErrNotFound, codes.NotFound},
		{configstore.ErrConflict, codes.Aborted},
		{configstore.ErrTooLarge, codes.InvalidArgument},
		{configstore.ErrInvalid, codes.InvalidArgument},
		{configstore.ErrReadOnly, codes.FailedPrecondition},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{context.Canceled, codes.Canceled},
	} {
		if errors.Is(err, known.err) {
			code = known.code
			break
		}
	}
	prefix := "store " + s.cfg.Store + ": " // some stores add it themselves
	return status.Error(code, prefix+strings.TrimPrefix(err.Error(), prefix))
}
