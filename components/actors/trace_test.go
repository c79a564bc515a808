package actors

import (
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// FuzzSpanFromBinary reads what a sidecar may send, and writes it again.
func FuzzSpanFromBinary(f *testing.F) {
	whole := binaryOf(trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 15: 2}, SpanID: trace.SpanID{3, 7: 4}, TraceFlags: trace.FlagsSampled}))
	f.Add(whole)
	f.Add(whole[:28])
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		s := spanFromBinary(text)
		if s.IsValid() && binaryOf(s) != text[:binaryLength] {
			t.Errorf("%x is read as %v, which is %x", text, s, binaryOf(s))
		}
		if text == whole && (!s.IsSampled() || !s.IsRemote() || s.SpanID() != (trace.SpanID{3, 7: 4})) {
			t.Errorf("%x is read as %v", text, s)
		}
	})
}
