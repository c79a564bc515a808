package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/kube"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

// Bounds of reading a namespace.
const (
	maxPods     = 20
	maxLogLines = 5_000
	maxLogBytes = 4 << 20
)

// podState is what is kept of a pod: no annotations, arguments or variables, where secrets may be.
type podState struct {
	Metadata struct {
		Name              string            `json:"name"`
		Labels            map[string]string `json:"labels"`
		CreationTimestamp string            `json:"creationTimestamp"`
		DeletionTimestamp string            `json:"deletionTimestamp,omitempty"`
	} `json:"metadata"`
	Spec struct {
		NodeName   string `json:"nodeName"`
		Containers []struct {
			Name      string          `json:"name"`
			Image     string          `json:"image"`
			Resources json.RawMessage `json:"resources,omitempty"`
		} `json:"containers"`
	} `json:"spec"`
	Status json.RawMessage `json:"status"`
}

// AddKubernetes adds what the namespace of a service's pods tells: their states, events and logs,
// and the version of the API server. Each takes a right of its own.
func (b *Bundle) AddKubernetes(ctx context.Context, cluster *kube.Cluster, namespace, selector string) {
	below := "/api/v1/namespaces/" + url.PathEscape(namespace)
	b.get(ctx, cluster, "kubernetes/version.json", "/version")
	b.list(ctx, cluster, "kubernetes/events.json", below+"/events", nil)
	pods, err := list[podState](ctx, cluster, below+"/pods", url.Values{"labelSelector": {selector}})
	b.addJSON("kubernetes/pods.json", pods, err)
	if len(pods) > maxPods {
		b.Add("kubernetes/logs", nil, fmt.Errorf("those of %d pods are in it, and of %d not", maxPods, len(pods)-maxPods))
		pods = pods[:maxPods]
	}
	for i := range pods {
		pod := &pods[i]
		for _, c := range pod.Spec.Containers {
			for _, previous := range []bool{false, true} {
				b.addLog(ctx, cluster, below+"/pods/"+url.PathEscape(pod.Metadata.Name)+"/log", pod.Metadata.Name+"-"+c.Name, c.Name, previous)
			}
		}
	}
}

// addLog adds the end of a container's log. That there is no previous container is no lack.
func (b *Bundle) addLog(ctx context.Context, cluster *kube.Cluster, path, name, container string, previous bool) {
	query := url.Values{
		"container": {container}, "previous": {strconv.FormatBool(previous)}, "timestamps": {"true"},
		"tailLines": {strconv.Itoa(maxLogLines)}, "limitBytes": {strconv.Itoa(maxLogBytes)},
	}
	text, err := cluster.Call(ctx, apiserver.Request{Verb: "get", Method: http.MethodGet, Path: path, Query: query, Accept: "*/*"})
	if previous {
		if name += "-before"; apiserver.Code(err) == http.StatusBadRequest {
			return
		}
	}
	b.Add("kubernetes/logs/"+name+".txt", text, err)
}

// list adds a list of objects, each without its annotations and what Kubernetes keeps for itself.
func (b *Bundle) list(ctx context.Context, cluster *kube.Cluster, name, path string, query url.Values) {
	all, err := list[map[string]any](ctx, cluster, path, query)
	for _, object := range all {
		if metadata, ok := object["metadata"].(map[string]any); ok {
			delete(metadata, "annotations")
			delete(metadata, "managedFields")
		}
	}
	b.addJSON(name, all, err)
}

func list[T any](ctx context.Context, cluster *kube.Cluster, path string, query url.Values) ([]T, error) {
	items, _, err := cluster.List(ctx, apiserver.Collection{Path: path, Query: query})
	all := make([]T, len(items))
	for i, item := range items {
		err = errors.Join(err, json.Unmarshal(item, &all[i]))
	}
	return all, err
}

func (b *Bundle) get(ctx context.Context, cluster *kube.Cluster, name, path string) {
	var value any
	err := cluster.Get(ctx, path, &value)
	b.addJSON(name, value, err)
}

func (b *Bundle) addJSON(name string, value any, err error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = errors.Join(err, encoder.Encode(value))
	b.Add(name, text.Bytes(), err)
}
