package forward

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

func TestAnAnswerIsKeptForAsLongAsItAllows(t *testing.T) {
	s := serve(t, records(t, "www.example.test. 60 A 192.0.2.1", "www.example.test. 90 A 192.0.2.2"))
	f := forwarder(t, Config{}, s.addr)
	first := ask(t, f, query("www.example.test.", dns.TypeA))
	if len(first.Answer) != 2 || first.Answer[0].Header().Ttl != 60 || !first.RecursionAvailable || first.Authoritative {
		t.Fatalf("got %s", first)
	}
	age(f, 20*time.Second)
	other := query("wWw.exaMple.teSt.", dns.TypeA)
	other.Id++
	second := ask(t, f, other)
	if got := second.Answer; got[0].Header().Ttl > 40 || got[0].Header().Ttl < 10 || got[1].Header().Ttl != got[0].Header().Ttl+30 || got[0].Header().Name != "wWw.exaMple.teSt." {
		t.Errorf("20 s later %s", second)
	}
	if got := s.asked.Load(); got != 1 {
		t.Errorf("the upstream was asked %d times", got)
	}
	age(f, 40*time.Second)
	ask(t, f, other)
	if got := s.asked.Load(); got != 2 {
		t.Errorf("after its end the upstream had been asked %d times", got)
	}
	if c := f.Counters(); c.Hits != 1 || c.Misses != 2 || c.Entries != 1 || c.Bytes < 100 {
		t.Errorf("counted %+v", c)
	}
}

func TestHowLongAnswersAreKept(t *testing.T) {
	soa := "example.test. %d SOA ns.example.test. host.example.test. 1 2 3 4 %d"
	for _, c := range []struct {
		name   string
		rcode  int
		answer string
		soa    [2]int // TTL and minimum
		want   time.Duration
	}{
		{"an address", 0, "a.example.test. 30 A 192.0.2.1", [2]int{}, 30 * time.Second},
		{"for too long", 0, "a.example.test. 10000000 A 192.0.2.1", [2]int{}, longestTTL},
		{"not at all", 0, "a.example.test. 0 A 192.0.2.1", [2]int{}, 0},
		{"no such name", dns.RcodeNameError, "", [2]int{300, 60}, time.Minute},
		{"no such name, by the SOA's own TTL", dns.RcodeNameError, "", [2]int{20, 60}, 20 * time.Second},
		{"no such name, for too long", dns.RcodeNameError, "", [2]int{86400, 86400}, longestNegative},
		{"no such name, and not for how long", dns.RcodeNameError, "", [2]int{}, 0},
		{"no data", 0, "", [2]int{300, 10}, 10 * time.Second},
		{"an alias of what is not there", dns.RcodeNameError, "a.example.test. 5 CNAME b.example.test.", [2]int{300, 60}, 5 * time.Second},
		{"an alias without data", 0, "a.example.test. 90 CNAME b.example.test.", [2]int{300, 60}, time.Minute},
		{"an alias, and no word of what it leads to", 0, "a.example.test. 90 CNAME b.example.test.", [2]int{}, 0},
	} {
		m := new(dns.Msg).SetRcode(query("a.example.test.", dns.TypeA), c.rcode)
		if c.answer != "" {
			m.Answer = append(m.Answer, rr(t, c.answer))
		}
		if c.soa != [2]int{} {
			m.Ns = append(m.Ns, rr(t, fmt.Sprintf(soa, c.soa[0], c.soa[1])))
		}
		if got := lifetime(m); got != min(c.want, longestTTL) {
			t.Errorf("%s: kept for %s, want %s", c.name, got, c.want)
		}
	}
}

func TestFailuresAreKeptForAMomentOnly(t *testing.T) {
	s := serve(t, func(w dns.ResponseWriter, q *dns.Msg) { w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeServerFailure)) })
	f := forwarder(t, Config{}, s.addr)
	m := ask(t, f, query("broken.test.", dns.TypeA))
	if e := extended(m); m.Rcode != dns.RcodeServerFailure || len(e) == 0 || e[0].InfoCode != dns.ExtendedErrorCodeNoReachableAuthority || !strings.Contains(e[0].ExtraText, s.addr.String()+": SERVFAIL") {
		t.Fatalf("got %s", m)
	}
	for _, e := range f.cache.byKey {
		if a := e.Value.(*kept).answer; a.expires.Sub(a.stored) != failureTTL {
			t.Errorf("it is kept for %s", a.expires.Sub(a.stored))
		}
	}
	age(f, -soon) // however slow this machine is
	had := s.asked.Load()
	ask(t, f, query("broken.test.", dns.TypeA))
	if s.asked.Load() != had {
		t.Error("the upstream was asked again at once")
	}
	age(f, failureTTL+soon)
	ask(t, f, query("broken.test.", dns.TypeA))
	if s.asked.Load() == had {
		t.Error("the upstream was not asked again after a second")
	}
}

func TestDOAndCDHaveAnswersOfTheirOwn(t *testing.T) {
	s := serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.AuthenticatedData = true
		m.Answer = []dns.RR{rr(t, "a.test. 60 A 192.0.2.1")}
		w.WriteMsg(m)
	})
	f := forwarder(t, Config{}, s.addr)
	for i, c := range []struct{ edns, do, cd, ad bool }{
		{}, {edns: true}, {edns: true, do: true}, {cd: true}, {edns: true, do: true, cd: true}, {ad: true},
	} {
		q := new(dns.Msg).SetQuestion("a.test.", dns.TypeA)
		q.CheckingDisabled, q.AuthenticatedData = c.cd, c.ad
		if c.edns {
			q.SetEdns0(4096, c.do)
		}
		m := ask(t, f, q)
		if m.CheckingDisabled != c.cd || m.AuthenticatedData != (c.do || c.ad) || c.edns && m.IsEdns0().Do() != c.do {
			t.Errorf("%d: asked %+v, got %s", i, c, m)
		}
		if i == 1 || i == 5 {
			continue // as the first, for the upstream
		}
		if got := s.last(); got.CheckingDisabled != c.cd || got.IsEdns0().Do() != c.do || !got.RecursionDesired || !got.AuthenticatedData || got.IsEdns0().UDPSize() != wire.MaxPayload {
			t.Errorf("%d: asked %+v, the upstream was asked %s", i, c, got)
		}
	}
	if got := s.asked.Load(); got != 4 {
		t.Errorf("the upstream was asked %d times, want one for each of DO and CD", got)
	}
}

func TestTheSameIsAskedOnceAtATime(t *testing.T) {
	let := make(chan struct{})
	s := serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		<-let
		records(t, "a.test. 0 A 192.0.2.1")(w, q)
	})
	f := forwarder(t, Config{Timeout: soon, Patience: soon}, s.addr)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			q := query("a.test.", dns.TypeA)
			q.Id = uint16(i)
			if m := ask(t, f, q); len(m.Answer) != 1 {
				t.Errorf("got %s", m)
			}
		})
	}
	eventually(t, "a hundred wait", func() bool { return f.Counters().Joined == 99 })
	close(let)
	all.Wait()
	if got := s.asked.Load(); got != 1 {
		t.Errorf("the upstream was asked %d times", got)
	}
}

func TestTheCacheIsBoundedInAnswersAndBytes(t *testing.T) {
	small, large := make([]byte, 100), make([]byte, 60_000)
	for _, entries := range []int{1, 10, 100, 1000} {
		c := newCache(entries, entries<<10)
		now := time.Now()
		for i := range 5 * entries {
			c.put(fmt.Sprint("small", i), &answer{packed: small, stored: now, expires: now.Add(time.Hour)})
			c.put(fmt.Sprint("large", i), &answer{packed: large, stored: now, expires: now.Add(time.Hour)})
			if n, size := c.load(); n > entries || size > entries<<10 {
				t.Fatalf("of %d answers and %d bytes there are %d and %d", entries, entries<<10, n, size)
			}
		}
	}
	none := newCache(-1, 1<<20)
	none.put("a", &answer{stored: time.Now(), expires: time.Now().Add(time.Hour)})
	if n, _ := none.load(); n != 0 {
		t.Error("no cache keeps something")
	}
}

func TestAFloodOfNamesLeavesWhatIsInUse(t *testing.T) {
	c := newCache(1000, 1<<20)
	now := time.Now()
	put := func(key string) {
		c.put(key, &answer{packed: make([]byte, 100), stored: now, expires: now.Add(time.Hour)})
	}
	for i := range 200 {
		put(fmt.Sprint("used", i))
	}
	for i := range 100_000 {
		put(fmt.Sprint("random", i))
		if i%2 == 0 {
			c.get(fmt.Append(nil, "used", i/2%200))
		}
	}
	left := 0
	for i := range 200 {
		if c.get(fmt.Append(nil, "used", i)) != nil {
			left++
		}
	}
	if left < 190 {
		t.Errorf("of 200 answers in use %d are left", left)
	}
}

func TestWhatHasEndedIsNotServed(t *testing.T) {
	var gone atomic.Bool
	s := serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		if gone.Load() {
			w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeServerFailure))
			return
		}
		records(t, "a.test. 60 A 192.0.2.1")(w, q)
	})
	f := forwarder(t, Config{}, s.addr)
	ask(t, f, query("a.test.", dns.TypeA))
	gone.Store(true)
	age(f, 61*time.Second)
	if m := ask(t, f, query("a.test.", dns.TypeA)); m.Rcode != dns.RcodeServerFailure || len(m.Answer) > 0 {
		t.Errorf("got %s", m)
	}
}
