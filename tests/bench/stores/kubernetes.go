package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// kubernetes is an API server, by client-go.
type kubernetes struct {
	dynamic.Interface
	http  *http.Client
	etcd  *servers.Etcd
	api   *servers.Kubernetes
	admin string // kubeconfig
}

// manifests are those that users apply; the program runs in the repository.
const manifests = "deploy/kubernetes/"

func startKubernetes(ctx context.Context, dir string) (*subject, error) {
	s := &kubernetes{admin: filepath.Join(dir, "admin.kubeconfig")}
	if err := s.start(ctx, dir); err != nil {
		return nil, errors.Join(err, s.close())
	}
	service := filepath.Join(dir, "service.kubeconfig")
	if err := servers.Kubeconfig(service, s.api.Addr(), s.api.CA(), "service"); err != nil {
		return nil, errors.Join(err, s.close())
	}
	count := counter{s.http, s.api.URL() + "/metrics", regexp.MustCompile(`^apiserver_request_total\{[^}]*group="isthmus\.dev"[^}]*\}`)}
	return &subject{
		settings: map[string]any{"kubernetes": map[string]any{"kubeconfig": service}},
		fill:     s.fill, put: s.put, watch: s.watch, requests: count.requests,
		port: portOf(s.api.Addr()), close: s.close,
	}, nil
}

// start starts an API server with what users apply to it.
func (s *kubernetes) start(ctx context.Context, dir string) (err error) {
	if s.etcd, err = servers.StartEtcd(ctx, dir, servers.EtcdOptions{}); err != nil {
		return err
	}
	s.api, err = servers.StartKubernetes(ctx, dir, servers.KubernetesOptions{Etcd: s.etcd.URL(), Users: []servers.KubernetesUser{
		{Name: "admin", Token: "admin", Groups: []string{"system:masters"}}, {Name: "service", Token: "service"},
	}})
	if err != nil {
		return err
	}
	if err := servers.Kubeconfig(s.admin, s.api.Addr(), s.api.CA(), "admin"); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.admin)
	if err != nil {
		return err
	}
	config.QPS = -1 // as fast as the server
	if s.Interface, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	if s.http, err = rest.HTTPClientFor(config); err != nil {
		return err
	}
	return s.prepare(ctx, dir)
}

func (s *kubernetes) prepare(ctx context.Context, dir string) error {
	kubectl, err := sandbox.Binary("kubectl")
	if err != nil {
		return err
	}
	commands := [][]string{
		{"create", "namespace", fleet.Namespace},
		{"apply", "-f", manifests + "crds.yaml", "-f", manifests + "admission.yaml", "-f", manifests + "rbac.yaml"},
		{"wait", "--for=condition=Established", "--timeout=30s", "-f", manifests + "crds.yaml"},
	}
	for _, role := range []string{"isthmus-reader", "isthmus-status", "isthmus-writer"} {
		commands = append(commands, []string{"create", "clusterrolebinding", role, "--clusterrole=" + role, "--user=service"})
	}
	for _, args := range commands {
		args = append([]string{"--kubeconfig=" + s.admin, "--cache-dir=" + dir}, args...)
		if out, err := exec.CommandContext(ctx, kubectl, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl %v: %w\n%s", args[2:], err, out)
		}
	}
	return nil
}

func (s *kubernetes) close() error {
	var errs []error
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
	if s.api != nil {
		errs = append(errs, s.api.Kill())
	}
	if s.etcd != nil {
		errs = append(errs, s.etcd.Kill())
	}
	return errors.Join(errs...)
}

// resource is what the API calls a kind.
func resource(kind catalog.Kind) schema.GroupVersionResource {
	plural := map[catalog.Kind]string{
		catalog.KindActorType: "actortypes", catalog.KindAppEndpoints: "appendpoints", catalog.KindAppExport: "appexports", catalog.KindAppInstance: "appinstances", catalog.KindCluster: "clusters",
	}[kind]
	return schema.FromAPIVersionAndKind(catalog.Version, "").GroupVersion().WithResource(plural)
}

// of is the collection that an object of a namespace is in.
func (s *kubernetes) of(key catalog.Key) dynamic.ResourceInterface {
	return s.Resource(resource(key.Kind)).Namespace(key.Namespace)
}

// custom is an object as an API server keeps it, with the status that it has once a
// service has seen it: the first one to see an object writes that, which takes it some
// minutes for 10,000, and is not measured here.
func custom(object catalog.Object) ([]byte, error) {
	var all map[string]any
	if err := json.Unmarshal(api.EncodeJSON(object), &all); err != nil {
		return nil, err
	}
	const written = "2026-01-01T00:00:00Z"
	metadata := all["metadata"].(map[string]any)
	metadata["uid"], metadata["generation"], metadata["creationTimestamp"] = uuid.NewUUID(), 1, written
	all["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "Accepted", "status": "True", "observedGeneration": 1, "lastTransitionTime": written,
		"reason": "Accepted", "message": "The object is in use.",
	}}}
	return json.Marshal(all)
}

// fill puts objects where the API server keeps them, as who restores a cluster does:
// through it, 20,000 writes would take longer than all that is measured.
func (s *kubernetes) fill(ctx context.Context, objects []catalog.Object) (err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.etcd.URL()}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	return each(ctx, objects, etcdBatch, 4, func(ctx context.Context, objects []catalog.Object) error {
		var ops []clientv3.Op
		for _, object := range objects {
			value, err := custom(object)
			if err != nil {
				return err
			}
			key := object.Key()
			ops = append(ops, clientv3.OpPut(path.Join("/registry", resource(key.Kind).Group, resource(key.Kind).Resource, key.Namespace, key.Name), string(value)))
		}
		_, err := client.Txn(ctx).Then(ops...).Commit()
		return err
	})
}

// put is "kubectl patch --type merge".
func (s *kubernetes) put(ctx context.Context, object catalog.Object) error {
	key := object.Key()
	var whole struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(api.EncodeJSON(object), &whole); err != nil {
		return err
	}
	patch, err := json.Marshal(whole)
	if err != nil {
		return err
	}
	_, err = s.of(key).Patch(ctx, key.Name, types.MergePatchType, patch, v1.PatchOptions{})
	return err
}

// watch is "kubectl get --watch" for the one object.
func (s *kubernetes) watch(ctx context.Context, key catalog.Key, seen func([]byte)) error {
	watch, err := s.of(key).Watch(ctx, v1.ListOptions{FieldSelector: "metadata.name=" + key.Name})
	if err != nil {
		return err
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		custom, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("watch: %v", event.Object)
		}
		value, err := json.Marshal(custom.Object["spec"])
		if err != nil {
			return err
		}
		seen(value)
	}
	return ctx.Err()
}
