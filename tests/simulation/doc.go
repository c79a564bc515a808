// Package simulation runs whole clusters in one process, on a fake clock and a network in memory:
// resolver services with their topologies, links and servers of peers, some of them with replicas,
// and sidecars that follow their views. A seed decides the events. After each event the views are
// compared with a model that knows the truth: the exports at each moment, the open paths, the
// running instances. docs/how-to/development.md explains how to run it and how to replay a seed.
package simulation
