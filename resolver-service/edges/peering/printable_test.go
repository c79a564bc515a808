package peering

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

func TestWhatAPeerWritesIsFitForATerminal(t *testing.T) {
	const hostile = "\x1b[2Jall is well\r\n\x07"
	k := newExportMirror()
	k.resume()
	k.receive(&v1alpha1.ExportsResponse{Put: []*v1alpha1.Export{{App: &v1alpha1.App{Namespace: "shop", Id: hostile}}}})
	var s linkStatus
	s.setExports(k)
	s.setPeerInfo(1, hostile)
	s.failed(nil, unwrapGRPC(status.Error(codes.PermissionDenied, hostile)))
	told := s.wire("east", leaseState{})
	texts := []string{told.Hears, told.Error, s.describe(leaseState{}, 0)}
	for _, r := range told.Refused {
		texts = append(texts, r.Source, r.Error)
	}
	if len(texts) != 5 {
		t.Fatalf("told %q", texts)
	}
	for _, text := range texts {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) || !strings.Contains(text, "all is well") {
			t.Errorf("operators are told %q", text)
		}
	}
}

// gRPC can't send a status with text that is not UTF-8.
func TestWhatAPeerWritesIsToldHoweverItIsCutOrCoded(t *testing.T) {
	long := strings.Repeat("a", maxName-1) + "\u00e9"
	k := newExportMirror()
	k.resume()
	k.receive(&v1alpha1.ExportsResponse{Put: []*v1alpha1.Export{{App: &v1alpha1.App{Namespace: "shop", Id: long}}}})
	var s linkStatus
	s.setExports(k)
	for _, reason := range []string{"\xff\xfe", strings.Repeat("a", maxReason-1) + "\u00e9"} {
		s.failed(nil, unwrapGRPC(status.Error(codes.PermissionDenied, reason)))
		if _, err := proto.Marshal(s.wire("east", leaseState{})); err != nil {
			t.Errorf("after %d bytes of a reason: %v", len(reason), err)
		}
	}
	if text := s.wire("east", leaseState{}).Refused[0].Source; !utf8.ValidString(text) {
		t.Errorf("refused %q", text)
	}
}
