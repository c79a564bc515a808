package show

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// Linked adds to the invitations of a service the clusters that it knows.
func Linked(l *v1alpha1.InvitationsResponse, s *v1alpha1.StatusResponse) {
	at := map[string]*v1alpha1.LinkedCluster{}
	of := func(cluster string) *v1alpha1.LinkedCluster {
		if at[cluster] == nil {
			at[cluster] = &v1alpha1.LinkedCluster{Cluster: cluster}
			l.Clusters = append(l.Clusters, at[cluster])
		}
		return at[cluster]
	}
	for _, p := range s.GetPeers() {
		c := of(p.GetCluster())
		c.State, c.Error = p.GetState(), p.GetError()
		for _, g := range p.GetGateways() {
			c.Gateways = append(c.Gateways, g.GetAddress())
		}
	}
	for _, t := range s.GetTrust() {
		if t.GetUse() == identity.PeerRoot {
			if c := of(t.GetCluster()); t.GetFingerprint() != "" {
				c.Roots = append(c.Roots, t.GetFingerprint())
			}
		}
	}
}

// LinkTables writes links for people.
func LinkTables(w io.Writer, l *v1alpha1.InvitationsResponse, now time.Time) error {
	var invitations, clusters [][]string
	for _, i := range l.GetInvitations() {
		left := ""
		if state := i.GetState(); state == "open" || state == "meeting" || state == "confirm" {
			left = time.UnixMilli(i.GetExpiresUnixMs()).Sub(now).Round(time.Second).String()
		}
		about := cmp.Or(i.GetError(), strings.Join(i.GetWords(), " "))
		invitations = append(invitations, []string{fmt.Sprintf("%.8s", i.GetId()), i.GetCluster(), i.GetState(), left, fmt.Sprint(i.GetTriesLeft()), i.GetReplica(), about})
	}
	for _, c := range l.GetClusters() {
		roots := "own"
		if len(c.GetRoots()) > 0 {
			short := make([]string, len(c.GetRoots()))
			for n, root := range c.GetRoots() {
				short[n] = fmt.Sprintf("%.16s…", root)
			}
			roots = strings.Join(short, " ")
		}
		clusters = append(clusters, []string{c.GetCluster(), c.GetState(), strings.Join(c.GetGateways(), " "), roots})
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
	object, err := decoded(key, m.GetObject())
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = objectsYAML(&b, []Object{{Object: object}})
	return b.String(), err
}

// LinkWay is how the reader of an advice reaches this cluster.
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
			table = append(table, []string{"     " + Name(a.GetApp()), fmt.Sprint(a.GetSidecars()), meets})
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
