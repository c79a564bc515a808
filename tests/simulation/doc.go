// Package simulation runs whole clusters in one process, on a fake clock and a network in memory:
// resolver services with their topologies, links and servers of peers, some of them with replicas,
// sidecars that follow their views and call each other, and the pods that they call. A seed decides the
// events. After each event the properties of docs/explanation/properties.md are checked by a model that
// knows the truth: the objects at each moment, the open paths, the running instances.
// docs/how-to/development.md explains how to run it and how to replay a seed.
package simulation
