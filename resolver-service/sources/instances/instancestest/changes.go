package instancestest

import (
	"cmp"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/raced"
)

func changes() []specification {
	return []specification{
		{"a server without instances is an empty full set", nothing},
		{"the full set comes first, and then what comes and goes", comeAndGo},
		{"an instance that drains stands, and takes calls again when it is ready", drain},
		{"a new address takes the place of the old one", newAddress},
		{"an address that is given to another app goes with it", anotherApp},
		{"of two instances at one address the ready one has it", reusedAddress},
		{"the last instance that goes leaves nothing", lastOne},
		{"bad entries are refused by name, and the rest stand", badEntries},
		{"a huge set comes whole, and changes of it come all the same", hugeSet},
	}
}

func nothing(t *testing.T, b Backend) {
	f := follow(t, b.Open(t))
	f.awaitSet()
	b.Put(t, one())
	f.awaitSet(one())
}

func comeAndGo(t *testing.T, b Backend) {
	b.Put(t, one(), elsewhere())
	f := follow(t, b.Open(t))
	f.awaitSet(one(), elsewhere())
	b.Put(t, two(), three())
	f.awaitSet(one(), two(), three(), elsewhere())
	b.Delete(t, two())
	f.awaitSet(one(), three(), elsewhere())
	b.Delete(t, three())
	f.awaitSet(one(), elsewhere())
	b.Put(t, three())
	f.awaitSet(one(), three(), elsewhere())
	f.neverLost(one(), elsewhere())
	f.awaitStatus("three instances, and all well", func(s instances.Status) bool {
		return s.Err == nil && s.Instances == 3 && s.RefusedCount == 0
	})
}

func drain(t *testing.T, b Backend) {
	orSkip(t, b.Drain != nil, "instances of this source do not drain")
	b.Put(t, one(), two())
	f := follow(t, b.Open(t))
	f.awaitSet(one(), two())
	b.Drain(t, one())
	f.awaitSet(draining(one()), two())
	again := follow(t, b.Open(t)) // one that comes later hears the same
	again.awaitSet(draining(one()), two())
	b.Put(t, one())
	f.awaitSet(one(), two())
	again.awaitSet(one(), two())
	b.Drain(t, two())
	f.awaitSet(one(), draining(two()))
	b.Delete(t, two())
	f.awaitSet(one())
}

func newAddress(t *testing.T, b Backend) {
	b.Put(t, one(), two())
	f := follow(t, b.Open(t))
	f.awaitSet(one(), two())
	now := moved(one(), "10.1.0.77:50777")
	b.Put(t, now)
	f.awaitSet(now, two())
	again := moved(one(), "[fd00::7]:50002")
	b.Put(t, again)
	f.awaitSet(again, two())
	f.neverLost(two())
}

func anotherApp(t *testing.T, b Backend) {
	b.Put(t, one(), two())
	f := follow(t, b.Open(t))
	f.awaitSet(one(), two())
	b.Delete(t, one())
	now := at("billing", "five", one().Address.String())
	b.Put(t, now)
	f.awaitSet(now, two())
	f.neverLost(two())
}

// reusedAddress has a server name an address twice, as while an instance that ends stands beside
// the one that has got its address.
func reusedAddress(t *testing.T, b Backend) {
	orSkip(t, b.Drain != nil, "instances of this source do not drain")
	old := one()
	f := follow(t, b.Open(t))
	for _, app := range []string{"orders", "billing"} {
		heir := at(app, "heir", old.Address.String())
		b.Put(t, old)
		b.Drain(t, old)
		b.Put(t, heir)
		f.awaitSet(draining(old), heir)
		f.serves(heir)
		b.Delete(t, old)
		f.awaitSet(heir)
		f.serves(heir)
		b.Delete(t, heir)
		f.awaitSet()
	}
}

func lastOne(t *testing.T, b Backend) {
	b.Put(t, one(), three())
	f := follow(t, b.Open(t))
	f.awaitSet(one(), three())
	b.Delete(t, one())
	f.awaitSet(three())
	b.Delete(t, three())
	f.awaitSet()
	if s := f.Status(); s.Err != nil {
		t.Errorf("status %+v; want that an empty server is no failure", s)
	}
	b.Put(t, one())
	f.awaitSet(one())
}

func badEntries(t *testing.T, b Backend) {
	orSkip(t, b.Spoil != nil, "this source's server has nothing that can't be used")
	b.Put(t, one())
	f := follow(t, b.Open(t))
	f.awaitSet(one())
	words, mend := b.Spoil(t)
	named := func(f *follower) {
		t.Helper()
		f.awaitStatus("one that refuses "+strings.Join(words, ", "), func(s instances.Status) bool { return s.Err == nil && refuses(s, words) })
	}
	named(f)
	b.Put(t, two())
	f.awaitSet(one(), two())
	again := follow(t, b.Open(t)) // in a full set, too
	again.awaitSet(one(), two())
	named(again)
	mend()
	f.awaitStatus("one that refuses nothing", func(s instances.Status) bool { return s.RefusedCount == 0 && len(s.Refused) == 0 })
	f.awaitSet(one(), two())
	f.neverLost(one())
}

// refuses tells whether each word is in a refusal.
func refuses(s instances.Status, words []string) bool {
	for _, word := range words {
		found := false
		for _, r := range s.Refused {
			found = found || strings.Contains(r.Where+": "+r.Err.Error(), word)
		}
		if !found {
			return false
		}
	}
	return true
}

func hugeSet(t *testing.T, b Backend) {
	many := raced.Fewer(cmp.Or(b.Many, 2000))
	const perApp = 4
	var all []catalog.Instance
	for n := range many {
		i := one()
		i.App.ID, i.ID = "app-"+word(n/perApp), "instance-"+word(n)
		i.Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(2 + n>>16), byte(n >> 8), byte(n)}), 50002)
		all = append(all, i)
	}
	b.Put(t, all...)
	begin := time.Now()
	f := follow(t, b.Open(t))
	f.awaitSet(all...)
	t.Logf("%d instances of %d apps came in %s", many, many/perApp, time.Since(begin).Round(time.Millisecond))
	begin = time.Now()
	b.Delete(t, all[many/2])
	all = append(all[:many/2:many/2], all[many/2+1:]...)
	f.awaitSet(all...)
	t.Logf("one that went was known %s after it was asked to", time.Since(begin).Round(time.Millisecond))
	b.Put(t, one())
	f.awaitSet(append(all, one())...)
	f.neverLost(all...)
}

// word is a number as part of a name.
func word(n int) string {
	const digits = "abcdefghij"
	text := ""
	for ; n > 0 || text == ""; n /= 10 {
		text = string(digits[n%10]) + text
	}
	return text
}
