// Package faults measures what becomes of calls when something breaks: three clusters with real
// daprd, real Sentry and the isthmus binary, each in a network namespace of its own, joined by
// links that can be cut, slowed down and made to lose packets. Each test prints how many calls
// there were, how many failed, the longest time without an answer and what was lost, and holds that
// to its limit. docs/reference/figures/failover.md tells of it. It runs on Linux only.
package faults
