package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/kube"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/snapshot"
)

// The service's pods, as the chart makes them: their labels, and the port of listen.kubernetes.
const (
	PodSelector     = "app.kubernetes.io/name=isthmus"
	podPort         = "kubernetes"
	usualPort       = 7482
	usualNamespace  = identity.SystemNamespace
	rightsToConnect = "bind the ClusterRole isthmus-operator-connect in that namespace to them"
)

// OnKubernetes tells whether the service is reached through a Kubernetes API server.
func (o Options) OnKubernetes() bool { return o.Kubeconfig != "" || o.KubeContext != "" }

// Namespace is the one of the service's pods.
func (o Options) Namespace() string { return cmp.Or(o.KubeNamespace, usualNamespace) }

// dialKubernetes prepares a connection to a pod of the service, as the user of a kubeconfig.
func dialKubernetes(ctx context.Context, o Options) (conn *Conn, err error) {
	cluster, err := kube.Open(o.Kubeconfig, o.KubeContext)
	if errors.Is(err, kube.ErrNoContext) {
		err = fmt.Errorf("%w: %w", ErrUse, err)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			cluster.Close()
		}
	}()
	pod, err := servingPod(ctx, cluster, o.Namespace())
	if err != nil {
		return nil, err
	}
	through, err := toPod(cluster, pod)
	return &Conn{ClientConn: through, options: o, way: cluster}, err
}

// toPod prepares a connection to one pod of the service.
func toPod(cluster *kube.Cluster, pod *kube.Pod) (*grpc.ClientConn, error) {
	as, err := credentialsOf(cluster)
	if err != nil {
		return nil, err
	}
	port := pod.Port(podPort, usualPort)
	dial := func(ctx context.Context, name string) (net.Conn, error) {
		return cluster.Dial(ctx, pod.Metadata.Namespace, name, port)
	}
	return grpc.NewClient("passthrough:///"+pod.Metadata.Name, append(append(answers(), as...), grpc.WithContextDialer(dial))...)
}

// Each calls do for each replica of the service that is ready, one after the other: sidecars are
// connected to one replica, which alone knows them. Outside Kubernetes it is the one that answers.
func (c *Conn) Each(ctx context.Context, do func(grpc.ClientConnInterface) error) error {
	var ready []kube.Pod
	if c.way != nil {
		pods, err := c.way.Pods(ctx, c.options.Namespace(), PodSelector)
		if err != nil {
			return err
		}
		ready = slices.DeleteFunc(pods, func(p kube.Pod) bool { return !p.Ready() })
	}
	if len(ready) == 0 {
		return do(c.ClientConn)
	}
	for i := range ready {
		conn, err := toPod(c.way, &ready[i])
		if err != nil {
			return err
		}
		err = do(conn)
		conn.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// Workloads are the owners of apps' pods in a namespace, as kubectl names it, each once. There are
// none outside Kubernetes, nor where the user may not read pods there.
func (c *Conn) Workloads(ctx context.Context, namespace string, ids []string) (all []string) {
	if c.way == nil {
		return nil
	}
	pods, _ := c.way.Pods(ctx, namespace, "dapr.io/sidecar-injected=true")
	for i := range pods {
		w, id := pods[i].Workload(), pods[i].Metadata.Annotations["dapr.io/app-id"]
		if w != "" && slices.Contains(ids, id) && !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	slices.Sort(all)
	return all
}

// Flags are those by which isthmus and kubectl go the same way as this connection, each with a
// blank before it. For kubectl there are none outside Kubernetes.
func (c *Conn) Flags() (isthmus, kubectl string) {
	o := c.options
	for _, f := range [][2]string{{"kubeconfig", o.Kubeconfig}, {"context", o.KubeContext}} {
		if f[1] != "" {
			kubectl += " --" + f[0] + " " + f[1]
		}
	}
	switch {
	case o.Context != "":
		isthmus = " --context " + o.Context
	case o.KubeNamespace != "":
		isthmus = kubectl + " --isthmus-namespace " + o.KubeNamespace
	default:
		isthmus = kubectl
	}
	return isthmus, kubectl
}

// servingPod is a pod of the service: one that is ready, or else one that runs, which can say why it
// is not.
func servingPod(ctx context.Context, cluster *kube.Cluster, namespace string) (*kube.Pod, error) {
	pods, err := cluster.Pods(ctx, namespace, PodSelector)
	if code := apiserver.Code(err); code == http.StatusForbidden {
		return nil, fmt.Errorf("%w; this takes rights of the kubeconfig's user: %s", err, rightsToConnect)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; is the kubeconfig's context %s the right one?", err, cluster.Context)
	}
	var running *kube.Pod
	for i := range pods {
		switch p := &pods[i]; {
		case p.Ready():
			return p, nil
		case p.Status.Phase == "Running":
			running = p
		}
	}
	switch {
	case running != nil:
		return running, nil
	case len(pods) > 0:
		return nil, fmt.Errorf("none of %d pods of Isthmus in namespace %s runs, context %s; see kubectl describe pods -n %[2]s", len(pods), namespace, cluster.Context)
	}
	return nil, fmt.Errorf("no pod of Isthmus (%s) in namespace %s, context %s; name its namespace by --isthmus-namespace", PodSelector, namespace, cluster.Context)
}

// Gateways are the addresses, host:port, that load balancers of Kubernetes have given the service's
// gateway. There are none outside Kubernetes, nor where the user may not read its Service.
func (c *Conn) Gateways(ctx context.Context) (all []string) {
	var service snapshot.Service
	if c.way == nil || c.way.Get(ctx, "/api/v1/namespaces/"+c.options.Namespace()+"/services/"+snapshot.Gateway, &service) != nil {
		return nil
	}
	for _, port := range service.Spec.Ports {
		if port.Name != "gateway" {
			continue
		}
		for _, at := range service.Status.LoadBalancer.Ingress {
			if host := cmp.Or(at.Hostname, at.IP); host != "" {
				all = append(all, net.JoinHostPort(host, strconv.Itoa(port.Number)))
			}
		}
	}
	return all
}

// credentialsOf show who the user is: by a client certificate, whose key stays here, or else by a
// token. The server's certificate is nobody's: the API server has led to the pod.
func credentialsOf(cluster *kube.Cluster) ([]grpc.DialOption, error) {
	user, err := cluster.Credentials()
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}
	certificate, err := user.Certificate()
	if err != nil {
		return nil, fmt.Errorf("client certificate of context %s: %w", cluster.Context, err)
	}
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
		return []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(config))}, nil
	}
	return []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(config)), grpc.WithPerRPCCredentials(bearer{user})}, nil
}

// bearer shows a user's token with each call.
type bearer struct{ user *kube.Credentials }

// GetRequestMetadata is that of [credentials.PerRPCCredentials].
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b.user.Token()
	if err != nil || token == "" {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity is that of [credentials.PerRPCCredentials].
func (bearer) RequireTransportSecurity() bool { return true }
