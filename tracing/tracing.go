// Package tracing has the attribute names and the spans of Isthmus, and carries W3C
// trace context through its gRPC services. It needs OpenTelemetry's API only; a
// program that exports spans of its own sets that up with package otlp beside it.
package tracing

import "go.opentelemetry.io/otel/attribute"

// scope names the instrumentation in every span.
const scope = "github.com/isthmus-mesh/isthmus"

// The attributes of Isthmus' spans.
const (
	App      = attribute.Key("isthmus.app")      // the app that is looked for, "namespace/app-id"
	Caller   = attribute.Key("isthmus.caller")   // the app that looks for it
	Outcome  = attribute.Key("isthmus.outcome")  // "ok", or which refusal
	Address  = attribute.Key("isthmus.address")  // the answer
	Cluster  = attribute.Key("isthmus.cluster")  // where the answer leads
	Gateway  = attribute.Key("isthmus.gateway")  // the gateway's host name, when it leads through one
	Rule     = attribute.Key("isthmus.rule")     // the object, and the line of it, that decided
	Revision = attribute.Key("isthmus.revision") // of the view that was read

	// OriginCluster is the cluster that a span is from. It stands on every span, since
	// inside daprd the resource is daprd's own. The name is OpenTelemetry's.
	OriginCluster = attribute.Key("k8s.cluster.name")
)
