//go:build clouds || stablecomponents || allcomponents

package dapr

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	kubeclient "github.com/dapr/components-contrib/common/authentication/kubernetes"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// kubernetesEngine reads and writes the ConfigMap of Dapr's Kubernetes store. Dapr's store
// answers from a cache that goes on answering when the API server is gone, so the
// ConfigMap is read from the server. It is one object: every read is of one moment, and
// every write is one. Its keys have no slash, so a point stands for each.
type kubernetesEngine struct {
	settings
	client *kubernetes.Clientset
	name   string
}

func connectKubernetes(s settings) (engine, error) {
	redirectKubernetesLog(s.log)
	path := s.component.property("kubeconfigPath")
	if path == "" {
		path = kubeclient.GetKubeconfigPath(s.logger(), nil)
	}
	client, err := kubeclient.GetKubeClient(path)
	if err != nil {
		return nil, err
	}
	return &kubernetesEngine{s, client, s.component.property("configMapName")}, nil
}

func (k *kubernetesEngine) close() {}

func (k *kubernetesEngine) get(ctx context.Context) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := k.client.CoreV1().ConfigMaps(kubernetesNamespace()).Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w; make it: kubectl create configmap %s", err, k.name)
	}
	return m, err
}

func (k *kubernetesEngine) list(ctx context.Context) (snapshot, error) {
	m, err := k.get(ctx)
	if err != nil {
		return snapshot{}, err
	}
	all := k.snapshot(m)
	delete(all.pairs, identityPath)
	return all, nil
}

func (k *kubernetesEngine) snapshot(m *corev1.ConfigMap) snapshot {
	all := snapshot{whole: true, pairs: make(map[string]held, len(m.Data))}
	for key, value := range m.Data {
		if path, ok := k.names.named(fromPoints(key)); ok {
			all.pairs[path] = held{value: value}
		}
	}
	all.head = m.Data[toPoints(k.names.key(headPath))]
	return all
}

// some reads the whole ConfigMap, which is one request anyway.
func (k *kubernetesEngine) some(ctx context.Context, paths []string) (snapshot, error) {
	m, err := k.get(ctx)
	if err != nil {
		return snapshot{}, err
	}
	all := k.snapshot(m)
	got := snapshot{head: all.head, pairs: map[string]held{}}
	for _, path := range paths {
		if h, ok := all.pairs[path]; ok {
			got.pairs[path] = h
		}
	}
	return got, nil
}

// commit replaces the ConfigMap if nobody else has meanwhile.
func (k *kubernetesEngine) commit(ctx context.Context, paths []string, decide func(snapshot) (rewrite, error)) error {
	for {
		m, err := k.get(ctx)
		if err != nil {
			return err
		}
		p, err := decide(k.snapshot(m))
		if err != nil {
			return err
		}
		data := maps.Clone(m.Data)
		if data == nil {
			data = map[string]string{}
		}
		for _, e := range p.edits {
			if key := toPoints(k.names.key(e.Path)); e.Value == nil {
				delete(data, key)
			} else {
				data[key] = string(e.Value)
			}
		}
		if head := p.headText(); head != "" {
			data[toPoints(k.names.key(headPath))] = head
		}
		m.Data = data
		err = k.update(ctx, m)
		switch {
		case apierrors.IsConflict(err):
			continue
		case apierrors.IsForbidden(err):
			return fmt.Errorf("%w: %w", configstore.ErrReadOnly, err)
		case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err):
			return fmt.Errorf("%w: a ConfigMap holds 1 MiB in all: %w", configstore.ErrTooLarge, err)
		}
		return err
	}
}

func (k *kubernetesEngine) update(ctx context.Context, m *corev1.ConfigMap) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := k.client.CoreV1().ConfigMaps(m.Namespace).Update(ctx, m, metav1.UpdateOptions{})
	return err
}

// mayWrite replaces the ConfigMap with itself, in a dry run.
func (k *kubernetesEngine) mayWrite(ctx context.Context) error {
	m, err := k.get(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = k.client.CoreV1().ConfigMaps(m.Namespace).Update(ctx, m, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: %w", configstore.ErrReadOnly, err)
	}
	return err
}

func toPoints(key string) string { return strings.ReplaceAll(key, "/", ".") }
