package kubernetes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
)

// name names a slice or a pod.
type name struct {
	pod       bool
	namespace string
	name      string
}

func (n name) String() string {
	kind := "EndpointSlice"
	if n.pod {
		kind = "Pod"
	}
	return kind + " " + n.namespace + "/" + n.name
}

// object is a slice or a pod, as far as it is needed.
type object struct {
	name
	deleted bool
	version string // resourceVersion
	created int64  // creationTimestamp, in seconds of Unix time
	labels  map[string]string
	calls   string // the annotation
	account string
	slice   sliceBody
}

// meta is what is needed of an object's metadata.
type meta struct {
	Namespace       string            `json:"namespace"`
	Name            string            `json:"name"`
	ResourceVersion string            `json:"resourceVersion"`
	Created         time.Time         `json:"creationTimestamp"`
	Labels          map[string]string `json:"labels"`
	Annotations     map[string]string `json:"annotations"`
}

// sliceBody is what is needed of a discovery.k8s.io/v1 EndpointSlice.
type sliceBody struct {
	AddressType string     `json:"addressType"`
	Ports       []port     `json:"ports"`
	Endpoints   []endpoint `json:"endpoints"`
}

type port struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     *int   `json:"port"`
}

type endpoint struct {
	Addresses  []string `json:"addresses"`
	Conditions struct {
		Ready       *bool `json:"ready"`
		Terminating *bool `json:"terminating"`
	} `json:"conditions"`
	TargetRef *struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"targetRef"`
	Zone string `json:"zone"`
}

func parse(text []byte, pod bool) (object, error) {
	var o struct {
		Metadata meta `json:"metadata"`
		sliceBody
		Spec struct {
			ServiceAccountName string `json:"serviceAccountName"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return object{}, fmt.Errorf("an object can't be read: %w", err)
	}
	if o.Metadata.Name == "" {
		return object{}, errNoName
	}
	return object{
		name: name{pod, o.Metadata.Namespace, o.Metadata.Name}, version: o.Metadata.ResourceVersion,
		created: max(0, o.Metadata.Created.Unix()), labels: o.Metadata.Labels, calls: o.Metadata.Annotations[CallsAnnotation], account: o.Spec.ServiceAccountName, slice: o.sliceBody,
	}, nil
}

// app is whose instances a slice has; ok is false where it is of no service of Dapr's.
func (o *object) app() (app catalog.App, ok bool) {
	id, ok := strings.CutSuffix(o.labels[serviceLabel], serviceSuffix)
	return catalog.App{Namespace: o.namespace, ID: id}, ok && id != ""
}

// found is an instance as one slice has it.
type found struct {
	catalog.Instance
	pod string // name; empty where the endpoint is none
}

var (
	errNoPort = errors.New("it has no TCP port " + internalPort + ", which the services of Dapr's operator have; is this another service with the label " + daprServices + "?")
	errNames  = errors.New("it has host names for addresses; a sidecar is called by its IP")
)

// instances are those of a slice. An endpoint that is neither ready nor ending is there
// and takes no calls: so it is known that it is not to be called, whoever else knows it.
func (o *object) instances(app catalog.App) (all []found, refused []instances.Refusal) {
	if len(o.slice.Endpoints) == 0 {
		return nil, nil // also without ports, as services without endpoints are
	}
	refuse := func(where string, err error) {
		refused = append(refused, instances.Refusal{Where: where, Err: err})
	}
	internal := o.slice.internalPort()
	switch err := app.Check(); {
	case err != nil:
		refuse(o.name.String(), err)
		return nil, refused
	case o.slice.AddressType == "FQDN":
		refuse(o.name.String(), errNames)
		return nil, refused
	case internal == 0:
		refuse(o.name.String(), errNoPort)
		return nil, refused
	}
	for i, e := range o.slice.Endpoints {
		f, err := e.instance(app, internal)
		if err != nil {
			refuse(fmt.Sprintf("%s, endpoint %d", o.name, i), err)
			continue
		}
		all = append(all, f)
	}
	return all, refused
}

func (s *sliceBody) internalPort() uint16 {
	for _, p := range s.Ports {
		if p.Name == internalPort && p.Port != nil && *p.Port > 0 && *p.Port < 1<<16 && (p.Protocol == "" || p.Protocol == "TCP") {
			return uint16(*p.Port)
		}
	}
	return 0
}

// instance reads an endpoint. Of several addresses it takes the first, as kube-proxy does.
func (e *endpoint) instance(app catalog.App, port uint16) (found, error) {
	if len(e.Addresses) == 0 {
		return found{}, errors.New("it has no address")
	}
	address, err := netip.ParseAddr(e.Addresses[0])
	if err != nil {
		return found{}, fmt.Errorf("address %.60q: is no IP", e.Addresses[0])
	}
	f := found{Instance: catalog.Instance{
		ID: address.String(), App: app, Address: netip.AddrPortFrom(address.Unmap(), port), Zone: e.Zone, Draining: !e.ready(),
	}}
	if e.TargetRef != nil && cmp.Or(e.TargetRef.Kind, "Pod") == "Pod" && e.TargetRef.Name != "" {
		f.pod = e.TargetRef.Name
		f.ID = f.pod
	}
	return f, nil
}

// ready follows the API: what is not said counts as ready. One that is ending is not ready,
// also where its service says that all always are.
func (e *endpoint) ready() bool {
	ready, ending := e.Conditions.Ready, e.Conditions.Terminating
	return (ready == nil || *ready) && (ending == nil || !*ending)
}
