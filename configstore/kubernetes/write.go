package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

// MaxBatch is how many objects can be written at once: Kubernetes has no write of two.
const MaxBatch = 1

// MaxObject is how many bytes of JSON an object can have. etcd takes requests of 1.5 MiB
// unless it is told otherwise; the rest is for labels, annotations, status and what
// Kubernetes itself adds.
const MaxObject = 1472 << 10

// Get is that of configstore.Reader.
func (s *Store) Get(ctx context.Context, key catalog.Key) (got configstore.Stored, err error) {
	err = s.do(ctx, func(ctx context.Context) error {
		_, i, err := s.get(ctx, key)
		if err != nil {
			return err
		}
		objects, refused := decode([]item{i})
		if len(refused) > 0 {
			got.Revision = i.meta.revision()
			return fmt.Errorf("get %s: %w: %w", where(key), configstore.ErrInvalid, refused[0].Err)
		}
		got = objects[0]
		return nil
	})
	return got, err
}

// get reads one resource as it is, and as the API server wrote it.
func (s *Store) get(ctx context.Context, key catalog.Key) ([]byte, item, error) {
	r := resourceOf(key.Kind)
	body, err := s.api.Call(ctx, apiserver.Request{Verb: "get", Method: http.MethodGet, Path: objectPath(key)})
	if missing(err, r) {
		return nil, item{}, fmt.Errorf("get %s: %w", where(key), configstore.ErrNotFound)
	}
	if err != nil {
		return nil, item{}, fmt.Errorf("get %s %w", where(key), advise(err, "get", r))
	}
	i, err := r.parse(body)
	return body, i, err
}

func objectPath(key catalog.Key) string {
	namespace, name := inKubernetes(key)
	return resourceOf(key.Kind).path(namespace) + "/" + url.PathEscape(name)
}

// List is that of configstore.Reader.
func (s *Store) List(ctx context.Context) (objects []configstore.Stored, refused []configstore.Refusal, err error) {
	err = s.do(ctx, func(ctx context.Context) error {
		items, _, err := s.listAll(ctx)
		objects, refused = decode(items)
		return err
	})
	return objects, refused, err
}

// Write is that of configstore.Writer. Labels, annotations and what else is in an
// object's metadata stay as they are.
func (s *Store) Write(ctx context.Context, writes ...configstore.Write) ([]string, error) {
	edits, err := configstore.Edits(writes, MaxObject)
	if err == nil && len(edits) > MaxBatch {
		err = fmt.Errorf("%w: %d objects at once, and Kubernetes writes %d at a time; write them one after the other", configstore.ErrTooLarge, len(writes), MaxBatch)
	}
	if err != nil {
		return nil, fmt.Errorf("store kubernetes: write: %w", err)
	}
	revisions := make([]string, len(edits))
	err = s.do(ctx, func(ctx context.Context) (err error) {
		for i, e := range edits {
			err = configstore.Rewrite(ctx, func(ctx context.Context) error {
				revisions[i], err = s.try(ctx, e)
				return err
			})
			if errors.Is(err, configstore.ErrRaced) {
				err = fmt.Errorf("write %s at %s: %w", where(e.Key()), s.api.Host(), err)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return revisions, nil
}

// try makes one write. The condition of it is held to what is there.
func (s *Store) try(ctx context.Context, w configstore.Edit) (string, error) {
	held := configstore.Absent
	var body []byte
	var there item
	if w.If != configstore.Absent { // else the API server itself refuses what is there
		var err error
		body, there, err = s.get(ctx, w.Key())
		if err == nil {
			held = there.meta.revision()
		} else if !errors.Is(err, configstore.ErrNotFound) {
			return "", err
		}
		if err := w.CheckIf(held); err != nil {
			return "", fmt.Errorf("write: %w", err)
		}
	}
	switch {
	case w.Object == nil:
		return "", s.remove(ctx, w.Key(), there)
	case held == configstore.Absent:
		return s.create(ctx, w)
	}
	return s.replace(ctx, w.Key(), body, w.Value)
}

func (s *Store) create(ctx context.Context, w configstore.Edit) (string, error) {
	key, value := w.Key(), w.Value
	r := resourceOf(key.Kind)
	namespace, name := inKubernetes(key)
	if name != key.Name {
		var err error
		if value, err = renamed(value, namespace, name); err != nil {
			return "", fmt.Errorf("create %s: %w", where(key), err)
		}
	}
	revision, err := s.put(ctx, r, apiserver.Request{Verb: "create", Method: http.MethodPost, Path: r.path(namespace), Body: value})
	if apiserver.Code(err) == http.StatusConflict {
		if w.If == "" {
			return "", configstore.ErrRaced
		}
		_, there, getErr := s.get(ctx, key)
		if getErr != nil {
			return "", configstore.ErrRaced
		}
		return "", fmt.Errorf("write: %w", w.CheckIf(there.meta.revision()))
	}
	if err != nil {
		return "", fmt.Errorf("create %s %w", where(key), err)
	}
	return revision, nil
}

// renamed is an object with the names that it has in Kubernetes.
func renamed(value []byte, namespace, name string) ([]byte, error) {
	var fields map[string]any
	if err := json.Unmarshal(value, &fields); err != nil {
		return nil, err
	}
	fields["metadata"] = map[string]string{"namespace": namespace, "name": name}
	return json.Marshal(fields)
}

// replace puts a spec into the place of another, in a resource that was just read.
func (s *Store) replace(ctx context.Context, key catalog.Key, body, value []byte) (string, error) {
	var was, is map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(body, &was), json.Unmarshal(value, &is)); err != nil {
		return "", err
	}
	is["metadata"] = was["metadata"]
	whole, err := json.Marshal(is)
	if err != nil {
		return "", err
	}
	r := resourceOf(key.Kind)
	revision, err := s.put(ctx, r, apiserver.Request{Verb: "update", Method: http.MethodPut, Path: objectPath(key), Body: whole})
	if apiserver.Code(err) == http.StatusConflict || missing(err, r) {
		return "", configstore.ErrRaced
	}
	if err != nil {
		return "", fmt.Errorf("write %s %w", where(key), err)
	}
	return revision, nil
}

func (s *Store) put(ctx context.Context, r resource, q apiserver.Request) (revision string, err error) {
	q.ContentType = "application/json"
	q.Query = url.Values{"fieldManager": {apiserver.FieldManager}, "fieldValidation": {"Strict"}}
	body, err := s.api.Call(ctx, q)
	if err != nil {
		return "", writeError(err, q.Verb, r)
	}
	i, err := r.parse(body)
	return i.meta.revision(), err
}

// remove deletes a resource if it is still as it was read.
func (s *Store) remove(ctx context.Context, key catalog.Key, there item) error {
	var options struct {
		Preconditions struct {
			UID             string `json:"uid"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"preconditions"`
	}
	options.Preconditions.UID, options.Preconditions.ResourceVersion = there.meta.UID, there.meta.ResourceVersion
	body, err := json.Marshal(options)
	if err != nil {
		return err
	}
	r := resourceOf(key.Kind)
	_, err = s.api.Call(ctx, apiserver.Request{Verb: "delete", Method: http.MethodDelete, Path: objectPath(key), ContentType: "application/json", Body: body})
	if apiserver.Code(err) == http.StatusConflict || missing(err, r) {
		return configstore.ErrRaced
	}
	if err != nil {
		return fmt.Errorf("delete %s %w", where(key), writeError(err, "delete", r))
	}
	return nil
}
