package embedded

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore"
)

func TestAFullSetForgetsWhatWasRefusedBefore(t *testing.T) {
	w := watch{refused: map[string]configstore.Refusal{}}
	bad := configstore.Pair{Path: "isthmus/v1alpha1/Cluster/east", Value: []byte("{"), Revision: "1"}
	if c := w.full([]configstore.Pair{bad}); len(c.Refused) != 1 {
		t.Fatalf("refused: %v", c.Refused)
	}
	w.full(nil) // it was deleted while the reader fell behind
	if c := w.difference(nil, nil); len(c.Refused) != 0 {
		t.Errorf("still refused: %v", c.Refused)
	}
}
