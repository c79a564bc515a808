// Package simulation runs whole clusters in one process, on a fake clock and a network in
// memory: resolver services with their topologies, links and servers of peers, some of
// them with replicas, and sidecars that follow their views. A seed decides what happens to
// them. After each step the views are held to a model that knows the truth: what was
// exported when, which paths were open, what runs. docs/development.md says how to run it
// and how to replay a seed.
package simulation
