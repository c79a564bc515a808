package snapshot

import (
	"encoding/base64"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Meta holds the metadata that checks read.
type Meta struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Deleted     string            `json:"deletionTimestamp"`
}

// Namespace holds the fields that checks read.
type Namespace struct {
	Metadata Meta `json:"metadata"`
}

// Pod holds the fields that checks read.
type Pod struct {
	Metadata Meta `json:"metadata"`
	Spec     struct {
		Containers     []Container `json:"containers"`
		InitContainers []Container `json:"initContainers"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// Container holds the fields that checks read.
type Container struct {
	Name  string   `json:"name"`
	Image string   `json:"image"`
	Args  []string `json:"args"`
	Env   []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	Ports []struct {
		Name   string `json:"name"`
		Number int    `json:"containerPort"`
	} `json:"ports"`
}

// Runs tells whether a pod does, or is about to.
func (p *Pod) Runs() bool {
	return p.Metadata.Deleted == "" && p.Status.Phase != "Succeeded" && p.Status.Phase != "Failed"
}

// App is the app-id, and whether Dapr is to give the pod a sidecar, as Dapr reads annotations.
func (p *Pod) App() (id string, enabled bool) {
	a := p.Metadata.Annotations
	enabled = slices.Contains([]string{"y", "yes", "true", "t", "on", "1"}, strings.ToLower(a["dapr.io/enabled"]))
	if id = a["dapr.io/app-id"]; id == "" {
		id = p.Metadata.Name
	}
	return id, enabled
}

// Sidecar is the pod's daprd; nil if it has none.
func (p *Pod) Sidecar() *Container {
	for _, all := range [][]Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range all {
			if all[i].Name == "daprd" {
				return &all[i]
			}
		}
	}
	return nil
}

// Arg is the value of a flag; empty if it is not there.
func (c *Container) Arg(flag string) string {
	for i, a := range c.Args {
		if value, ok := strings.CutPrefix(a, flag+"="); ok {
			return value
		}
		if a == flag && i+1 < len(c.Args) {
			return c.Args[i+1]
		}
	}
	return ""
}

// Service holds the fields that checks read.
type Service struct {
	Metadata Meta `json:"metadata"`
	Spec     struct {
		Type     string            `json:"type"`
		Selector map[string]string `json:"selector"`
		External []string          `json:"externalIPs"`
		Ports    []ServicePort     `json:"ports"`
	} `json:"spec"`
	Status struct {
		LoadBalancer struct {
			Ingress []struct {
				IP       string `json:"ip"`
				Hostname string `json:"hostname"`
			} `json:"ingress"`
		} `json:"loadBalancer"`
	} `json:"status"`
}

// ServicePort is a port of a service. The target is the number or the name of a pod's.
type ServicePort struct {
	Name     string `json:"name"`
	Number   int    `json:"port"`
	Target   any    `json:"targetPort"`
	NodePort int    `json:"nodePort"`
}

// Deployment holds the fields that checks read.
type Deployment struct {
	Metadata Meta `json:"metadata"`
	Spec     struct {
		Replicas *int `json:"replicas"`
		Template struct {
			Metadata Meta `json:"metadata"`
			Spec     struct {
				Containers []Container `json:"containers"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		Ready int `json:"readyReplicas"`
	} `json:"status"`
}

// Configuration holds the fields of Dapr's that checks read.
type Configuration struct {
	Metadata Meta `json:"metadata"`
	Spec     struct {
		NameResolution struct {
			Component     string         `json:"component"`
			Configuration map[string]any `json:"configuration"`
		} `json:"nameResolution"`
		MTLS *struct {
			Enabled     *bool  `json:"enabled"`
			TrustDomain string `json:"controlPlaneTrustDomain"`
		} `json:"mtls"`
	} `json:"spec"`
}

// Node holds the fields that checks read.
type Node struct {
	Metadata Meta `json:"metadata"`
	Spec     struct {
		ProviderID string `json:"providerID"`
	} `json:"spec"`
}

// ConfigMap is one, or what may be seen of a Secret.
type ConfigMap struct {
	Metadata Meta              `json:"metadata"`
	Data     map[string]string `json:"data"`
}

// secret has the one key of Dapr's Secret that is public. The others are not decoded.
type secret struct {
	Data struct {
		Roots string `json:"ca.crt"`
	} `json:"data"`
}

func (s *secret) text() string {
	text, err := base64.StdEncoding.DecodeString(s.Data.Roots)
	if err != nil {
		return ""
	}
	return string(text)
}

// policy and binding are what is read of the MutatingAdmissionPolicy that gives pods their sidecars.
type policy struct {
	Spec struct {
		Mutations []struct {
			Apply struct {
				Expression string `json:"expression"`
			} `json:"applyConfiguration"`
		} `json:"mutations"`
	} `json:"spec"`
}

type binding struct {
	Spec struct {
		MatchResources struct {
			NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
		} `json:"matchResources"`
	} `json:"spec"`
}
