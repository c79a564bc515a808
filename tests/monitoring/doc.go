// Package monitoring tests the alerts and dashboards of deploy/monitoring against a real Prometheus
// that scrapes real clusters. Durations of the rules are shortened; nothing else of them changes.
package monitoring
