package actors

import (
	"fmt"
	"testing"
)

// TestARingIsDaprs finds actors where Dapr 1.18.2 does: these are the answers of hashing.NewFromExisting
// in github.com/dapr/dapr/pkg/placement/hashing, for the hosts 10.0.0.0:50002 to 10.0.0.4:50002.
func TestARingIsDaprs(t *testing.T) {
	for points, want := range map[int]string{
		100: "321413341244204303431403024123113003110331430404140234110140",
		7:   "422420441441401210213440030304202000200332424111142244104003",
	} {
		r := &ring{points: points}
		for i := range 5 {
			r.hosts = append(r.hosts, hostKey{fmt.Sprintf("10.0.0.%d:50002", i), "carts"})
		}
		got := ""
		for i := range len(want) {
			at, _ := r.find(fmt.Sprint("cart-", i))
			got += at.address[7:8]
		}
		if got != want {
			t.Errorf("with %d points a host, the actors are at\n%s, want\n%s", points, got, want)
		}
	}
	if _, ok := (&ring{points: 100}).find("cart"); ok {
		t.Error("a ring without hosts finds one")
	}
}
