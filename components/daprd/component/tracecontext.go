package component

import (
	"context"

	"github.com/dapr/dapr/pkg/diagnostics"
	"github.com/dapr/dapr/pkg/diagnostics/consts"
	"github.com/dapr/dapr/pkg/diagnostics/utils"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

// cleanTrace leaves one valid trace context in the metadata of a proxied call, or none. daprd adds
// its own to a client's, and readers take the first. local says that the call goes to this
// sidecar's app, for which daprd adds none.
func cleanTrace(ctx context.Context, md metadata.MD, local bool) {
	texts, binaries := md[consts.TraceparentHeader], md[consts.GRPCTraceContextKey]
	own := utils.SpanFromContext(ctx).SpanContext()
	if own.IsValid() || len(texts) > 0 || len(binaries) > 0 {
		delete(md, consts.TraceparentHeader)
		delete(md, consts.GRPCTraceContextKey)
	}
	switch {
	case !own.IsValid(): // without tracing, the caller's goes through
		if n := len(texts); n > 0 && isValid(texts[n-1]) {
			md[consts.TraceparentHeader] = texts[n-1:]
		}
		if n := len(binaries); n > 0 {
			if found, _ := utils.SpanContextFromBinary([]byte(binaries[n-1])); found.IsValid() {
				md[consts.GRPCTraceContextKey] = binaries[n-1:]
			}
		}
	case local:
		md[consts.TraceparentHeader] = []string{diagnostics.SpanContextToW3CString(own)}
		md[consts.GRPCTraceContextKey] = []string{string(utils.BinaryFromSpanContext(own))}
	}
}

// isValid tells whether a traceparent is one by W3C's rules, which are stricter than daprd's.
func isValid(traceparent string) bool {
	read := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	return trace.SpanContextFromContext(read).IsValid()
}
