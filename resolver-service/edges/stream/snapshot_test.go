package stream

import (
	"encoding/json"
	"testing"
)

// What is written by hand is what package json reads, whatever clients call their instances.
func TestASnapshotKeepsAnyText(t *testing.T) {
	i := instanceOf(orders, "", "[fe80::1%eth0]:2")
	i.Draining, i.Unverified, i.Since, i.Calls = true, true, -7, "shop/orders"
	for _, text := range []string{"", "10.0.0.1:1", "\"\\\x00\n\u2028<&>", "é\x7f", "\U0001F600"} {
		i.ID, i.Zone, i.Version = text, text, text
		var back savedInstance
		if err := json.Unmarshal(appendSaved(nil, &i), &back); err != nil || back.instance() != i {
			t.Errorf("%q: came back as %+v (%v)", text, back, err)
		}
	}
}
