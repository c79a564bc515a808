package storetest

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/api"
)

func TestSizedObjectsAreAsLongAsTheySay(t *testing.T) {
	for _, bytes := range []int{200, 1000, 5789, 5790, 65_536, 65_537, 512 << 10, 1<<20 + 3} {
		o := sized(t, "large", bytes)
		if _, err := api.DecodeJSON(api.KeyPath(o.Key()), api.EncodeJSON(o)); err != nil {
			t.Errorf("an object of %d bytes can't be used: %v", bytes, err)
		}
	}
	for bytes := 12_000; bytes < 12_200; bytes++ {
		sized(t, "large", bytes)
	}
}
