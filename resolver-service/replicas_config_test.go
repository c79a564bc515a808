package resolverservice

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Every combination of a store and a source of instances can be told from its
// configuration: those with which replicas behave as one are taken, and the others
// refused with the reason.
func TestWhichReplicasAreTaken(t *testing.T) {
	const (
		etcdStore = "store: {etcd: {endpoints: ['127.0.0.1:2379']}}\n"
		consul    = "store: {consul: {}}\n"
		shared    = "instances: {etcd: {endpoints: ['127.0.0.1:2379'], ttl: 5s}}\n"
		replicas  = "replicas: {name: a}\n"
	)
	for text, want := range map[string]string{
		etcdStore + shared + replicas:                                     "",
		consul + shared + replicas:                                        "",
		consul + shared + "replicas: {}\n":                                "",
		etcdStore + "instances: {consul: {}}\n" + replicas:                "",
		etcdStore + "instances: {consul: {appNamespace: A}}\n" + replicas: `instances.consul.appNamespace: namespace "A"`,
		etcdStore:            "",
		etcdStore + replicas: `replicas: no source of instances is shared: a sidecar that registers with one replica would be unknown to the others; write "instances: {etcd:`,
		shared + replicas:    `replicas: store embedded is a file of one process: what is applied to this replica, the others would never know; keep the objects in consul, etcd,`,
		shared + replicas + "store: {file: {path: .}}\n": `replicas: store file tells only the machine that it is on of changes`,
		etcdStore + shared: `instances.etcd: is where replicas share what sidecars register, and this is the only service; write "replicas: {name: a}"`,
		etcdStore + shared + "replicas: {name: 'a b'}\n":                                     `replicas.name: "a b" is no name`,
		etcdStore + shared + "replicas: {name: a, addresses: ['r1:7400', '[::1]:7400']}\n":   "",
		etcdStore + shared + "replicas: {name: a, addresses: [r1]}\n":                        `replicas.addresses[0]: "r1" is no address; write host:port`,
		etcdStore + shared + "replicas:\n":                                                   `replicas: has no value`,
		etcdStore + replicas + "instances: {etcd: {}}\n":                                     `instances.etcd.endpoints: is missing`,
		etcdStore + replicas + "instances: {etcd: {endpoints: [x]}}\n":                       `instances.etcd.endpoints[0]: "x": want host:port`,
		etcdStore + replicas + "instances: {etcd: {endpoints: ['a:1'], ttl: 1s}}\n":          `instances.etcd.ttl: 1s is out of bounds; write a time from 2s to 10m0s`,
		etcdStore + replicas + "instances: {etcd: {endpoints: ['a:1'], tls: {ca: /none}}}\n": `instances.etcd.tls: ca: open /none`,
		etcdStore + replicas + "instances: {etcd: {endpoints: ['a:1'], endpoint: b}}\n":      `instances.etcd.endpoint: unknown field; did you mean "endpoints"?`,
		etcdStore + "instances: {kubernetes: {kubeconfig: /none}}\n":                         `instances.kubernetes`,
	} {
		cfg, err := Parse("isthmus.yaml", []byte("cluster: west\nidentity: {insecure: true}\n"+text))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s\nis refused: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s\n%v\nwant %s", text, err, want)
		case err == nil && cfg.Replicas != nil && cfg.snapshot() != "":
			t.Errorf("%s\nkeeps a snapshot of instances that may be elsewhere by now", text)
		}
	}
	cfg, err := Parse("isthmus.yaml", []byte("cluster: west\nidentity: {insecure: true}\n"+etcdStore+shared+"replicas: {}\n"))
	host, _ := os.Hostname()
	if err != nil || cfg.replica() != host || cfg.Instances.Etcd.TTL != 5*time.Second {
		t.Errorf("%+v, %v; want the replica to have the host's name, %s", cfg.Replicas, err, host)
	}
}
