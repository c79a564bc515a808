package show

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// Invitation is a new invitation, as programs read it.
type Invitation struct {
	Invitation string `json:"invitation" yaml:"invitation"` // a secret until it is used
	Link       Link   `json:"link" yaml:"link"`
}

// Link is how an invitation is, on either side.
type Link struct {
	ID        string   `json:"id" yaml:"id"`
	Cluster   string   `json:"cluster" yaml:"cluster"` // the other one
	State     string   `json:"state" yaml:"state"`     // open, meeting, confirm, linked, expired, revoked, spent or refused
	Words     []string `json:"words" yaml:"words"`     // the same on both sides
	Expires   string   `json:"expires" yaml:"expires"`
	TriesLeft uint32   `json:"triesLeft" yaml:"triesLeft"`
	Replica   string   `json:"replica" yaml:"replica"` // that has the invitation
	By        string   `json:"by" yaml:"by"`
	Result    string   `json:"result" yaml:"result"` // of the Cluster object: created, changed, unchanged or told
	Reason    string   `json:"reason" yaml:"reason"` // of the last refusal, in one word
	Error     string   `json:"error" yaml:"error"`
}

// LinkOf reads a link from its message.
func LinkOf(m *v1alpha1.LinkState) Link {
	return Link{
		ID: m.GetId(), Cluster: m.GetCluster(), State: m.GetState(), Words: append([]string{}, m.GetWords()...),
		Expires: time.UnixMilli(m.GetExpiresUnixMs()).UTC().Format(time.RFC3339), TriesLeft: m.GetTriesLeft(), Replica: m.GetReplica(),
		By: m.GetBy(), Result: m.GetResult(), Reason: m.GetReason(), Error: m.GetError(),
	}
}

// Links are the invitations of a service and the clusters that it knows.
type Links struct {
	Invitations []Link          `json:"invitations" yaml:"invitations"`
	Clusters    []LinkedCluster `json:"clusters" yaml:"clusters"`
}

// LinkedCluster is a cluster that has a Cluster object.
type LinkedCluster struct {
	Cluster  string   `json:"cluster" yaml:"cluster"`
	State    string   `json:"state" yaml:"state"` // as in isthmus status; empty if it has no gateway
	Gateways []string `json:"gateways" yaml:"gateways"`
	Roots    []string `json:"roots" yaml:"roots"` // the SHA-256 of each; empty if it has this cluster's own
	Error    string   `json:"error" yaml:"error"`
}

// LinksOf reads the links of a service.
func LinksOf(m *v1alpha1.InvitationsResponse, s *v1alpha1.StatusResponse) Links {
	l := Links{Invitations: []Link{}, Clusters: []LinkedCluster{}}
	for _, i := range m.GetInvitations() {
		l.Invitations = append(l.Invitations, LinkOf(i))
	}
	at := map[string]int{}
	add := func(cluster string) *LinkedCluster {
		i, there := at[cluster]
		if !there {
			i, at[cluster] = len(l.Clusters), len(l.Clusters)
			l.Clusters = append(l.Clusters, LinkedCluster{Cluster: cluster, Gateways: []string{}, Roots: []string{}})
		}
		return &l.Clusters[i]
	}
	for _, p := range s.GetPeers() {
		c := add(p.GetCluster())
		c.State, c.Error = p.GetState(), p.GetError()
		for _, g := range p.GetGateways() {
			c.Gateways = append(c.Gateways, g.GetAddress())
		}
	}
	for _, t := range s.GetTrust() {
		if t.GetUse() == identity.PeerRoot {
			if c := add(t.GetCluster()); t.GetFingerprint() != "" {
				c.Roots = append(c.Roots, t.GetFingerprint())
			}
		}
	}
	return l
}

// LinkTables writes links for people.
func LinkTables(w io.Writer, l Links, now time.Time) error {
	var invitations, clusters [][]string
	for _, i := range l.Invitations {
		left := ""
		if at, err := time.Parse(time.RFC3339, i.Expires); err == nil && (i.State == "open" || i.State == "meeting" || i.State == "confirm") {
			left = at.Sub(now).Round(time.Second).String()
		}
		about := strings.Join(i.Words, " ")
		if i.Error != "" {
			about = i.Error
		}
		invitations = append(invitations, []string{fmt.Sprintf("%.8s", i.ID), i.Cluster, i.State, left, fmt.Sprint(i.TriesLeft), i.Replica, about})
	}
	for _, c := range l.Clusters {
		roots := "own"
		if len(c.Roots) > 0 {
			short := make([]string, len(c.Roots))
			for n, root := range c.Roots {
				short[n] = fmt.Sprintf("%.16s…", root)
			}
			roots = strings.Join(short, " ")
		}
		clusters = append(clusters, []string{c.Cluster, c.State, strings.Join(c.Gateways, " "), roots})
	}
	if len(invitations) > 0 {
		if err := rows(w, []string{"INVITATION", "CLUSTER", "STATE", "LEFT", "TRIES", "REPLICA", "WORDS"}, invitations, "REPLICA"); err != nil {
			return err
		}
		Say(w, "\n")
	}
	return rows(w, []string{"CLUSTER", "LINK", "GATEWAYS", "ROOTS"}, clusters)
}

// ClusterYAML is the other cluster's object, for a file.
func ClusterYAML(m *v1alpha1.LinkState) (string, error) {
	key := catalog.Key{Kind: catalog.KindCluster, Name: m.GetCluster()}
	object, err := api.DecodeJSON(api.KeyPath(key), m.GetObject())
	if err != nil {
		return "", fmt.Errorf("read %s from the answer: %w; is the service of another version than this isthmus?", key, err)
	}
	var b bytes.Buffer
	err = objectsYAML(&b, []Object{{Object: object}})
	return b.String(), err
}

// LinkWay is how the user who is told what to do reaches this cluster.
type LinkWay struct {
	Trust   string   // the command that shows what a cluster's trust takes
	Kubectl string   // flags of kubectl, with a blank before each
	Restart []string // commands that restart the workloads of the apps; none where they are not known
}

// LinkTrust says which sidecars lack a cluster's roots, and what to do.
func LinkTrust(w io.Writer, cluster string, m *v1alpha1.LinkTrustResponse, by LinkWay) error {
	if m.GetPeerRoots() == "" {
		_, err := Say(w, "cluster %s has this cluster's own roots: its sidecars and yours trust each other already\n", cluster)
		return err
	}
	_, err := Say(w, `
Sidecars check each other: calls fail until those of both clusters trust both roots. It means that
each authority can speak for every app-id, see docs/how-to/trust.md. Isthmus does not change this.

1. Give Dapr both roots. In Kubernetes:
     %[1]s --manifest | kubectl apply%[2]s --server-side --force-conflicts -f -
   Elsewhere, DAPR_TRUST_ANCHORS of each sidecar is the text of:
     %[1]s --roots
2. Restart the sidecars that were started without them:
`, by.Trust, by.Kubectl)
	if err != nil {
		return err
	}
	if len(m.GetApps()) == 0 {
		_, err = Say(w, "     none here lacks them, as far as sidecars tell\n")
	} else {
		var table [][]string
		for _, a := range m.GetApps() {
			meets := "not yet"
			if a.GetMeets() {
				meets = "yes"
			}
			table = append(table, []string{"     " + a.GetApp().GetNamespace() + "/" + a.GetApp().GetId(), fmt.Sprint(a.GetSidecars()), meets})
		}
		err = rows(w, []string{"     APP", "SIDECARS", "CALLS " + strings.ToUpper(cluster) + " OR IS CALLED"}, table)
	}
	if err == nil {
		_, err = io.WriteString(w, by.restart())
	}
	if err == nil {
		_, err = Say(w, "3. Do the same in cluster %s, by isthmus link trust there. isthmus check finds those that still lack them.\n", cluster)
	}
	return err
}

// restart is how sidecars are restarted in Kubernetes.
func (w LinkWay) restart() string {
	const begin = "   In Kubernetes, two minutes after the first step, since Dapr's injector reads roots late:\n"
	if len(w.Restart) == 0 {
		return begin + "     kubectl rollout restart" + w.Kubectl + ", for the workload of each\n"
	}
	return begin + "     " + strings.Join(w.Restart, "\n     ") + "\n"
}

// anchors are this cluster's trust anchors with the other's roots, each once.
func anchors(m *v1alpha1.LinkTrustResponse) []byte {
	var all []byte
	seen := map[string]bool{}
	for rest := []byte(m.GetOwnRoots() + "\n" + m.GetPeerRoots()); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return all
		}
		if !seen[string(block.Bytes)] {
			seen[string(block.Bytes)] = true
			all = append(all, pem.EncodeToMemory(block)...)
		}
	}
}

// TrustAnchors writes the trust anchors that sidecars need, in PEM.
func TrustAnchors(w io.Writer, m *v1alpha1.LinkTrustResponse) error {
	_, err := w.Write(anchors(m))
	return err
}

// defaultControlPlane is the namespace that Dapr's chart is installed in.
const defaultControlPlane = "dapr-system"

// TrustManifest writes Dapr's Secret and ConfigMap with the trust anchors, and nothing else of
// them: it is for kubectl apply --server-side, which leaves the other keys alone. Both have the
// same text, since Sentry makes a new root where they differ.
func TrustManifest(w io.Writer, m *v1alpha1.LinkTrustResponse) error {
	namespace, text := m.GetSentryNamespace(), anchors(m)
	if namespace == "" || namespace == "default" {
		namespace = defaultControlPlane
	}
	_, err := fmt.Fprintf(w, `# The trust anchors of this cluster's sidecars, %d roots. Apply it with kubectl apply --server-side,
# which leaves the other keys of the Secret alone.
apiVersion: v1
kind: ConfigMap
metadata: {name: dapr-trust-bundle, namespace: %s}
data:
  ca.crt: |
    %s
---
apiVersion: v1
kind: Secret
metadata: {name: dapr-trust-bundle, namespace: %[2]s}
data:
  ca.crt: %[4]s
`, bytes.Count(text, []byte("BEGIN CERTIFICATE")), namespace, strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    "), base64.StdEncoding.EncodeToString(text))
	return err
}
