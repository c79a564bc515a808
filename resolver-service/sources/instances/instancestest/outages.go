package instancestest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func outages() []specification {
	return []specification{
		{"failing is not empty, and the error says what server", failingIsNotEmpty},
		{"a server that is away from the start says nothing, and is heard when it is there", awayFromTheStart},
		{"what changed while the server was away is known within a second of its return", soonBack},
		{"by a connection lost again and again, nothing is lost", flapping},
		{"a server's restart takes nothing away", func(t *testing.T, b Backend) { restart(t, b, false) }},
		{"a server's kill -9 takes nothing away", func(t *testing.T, b Backend) { restart(t, b, true) }},
		{"a Watch finds out by itself that its link is cut, and what was missed comes", cutLink},
		{"by a slow link, the full set and changes come all the same", slowLink},
		{"a server that forgets what was is read anew, and takes nothing away", forget},
	}
}

// names holds that an error of a server names the server, and shows no secret.
func (b Backend) names(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		t.Error("no error")
		return
	}
	text := err.Error()
	for _, secret := range b.Secrets {
		if strings.Contains(text, secret) {
			t.Errorf("the error shows a secret: %s", strings.ReplaceAll(text, secret, "<the secret>"))
		}
	}
	if len(b.Servers) > 0 && !slices.ContainsFunc(b.Servers, func(server string) bool { return strings.Contains(text, server) }) {
		t.Errorf("%s; want the server named, one of %v", text, b.Servers)
	}
}

func failingIsNotEmpty(t *testing.T, b Backend) {
	orSkip(t, b.Fail != nil, "this source's server can't be made to fail")
	b.Put(t, one(), two())
	f := follow(t, b.Open(t))
	f.awaitSet(one(), two())
	before := time.Now()
	mend := b.Fail(t)
	status := f.awaitStatus("a failing source", failing)
	if !status.Ready || status.Instances != 2 || status.Since.Before(before) {
		t.Errorf("status of the failing source %+v; want two instances that stand, and since when", status)
	}
	b.names(t, status.Err)
	mend()
	f.awaitStatus("the source back", well)
	b.Put(t, three())
	f.awaitSet(one(), two(), three())
	f.neverLost(one(), two())
}

func awayFromTheStart(t *testing.T, b Backend) {
	orSkip(t, b.Fail != nil, "this source's server can't be made to fail")
	b.Put(t, one())
	mend := b.Fail(t)
	f := follow(t, b.Open(t))
	status := f.awaitStatus("a failing source", failing)
	f.nothingSaid()
	if status.Ready {
		t.Errorf("status %+v; want that its full set is not in", status)
	}
	select {
	case <-f.Feed.Settled():
		t.Error("settled without the source")
	default:
	}
	mend()
	f.awaitSet(one())
	<-f.Feed.Settled()
}

// soonBack tries it some times: a machine that is busy may take a second for anything.
func soonBack(t *testing.T, b Backend) {
	orSkip(t, b.Fail != nil, "this source's server can't be made to fail")
	b.Put(t, one(), two())
	f := follow(t, b.Open(t))
	f.awaitSet(one(), two())
	var took []time.Duration
	const tries = 5
	for n := range tries {
		mend := b.Fail(t)
		f.awaitStatus("a failing source", failing)
		now := moved(two(), fmt.Sprintf("10.1.1.%d:50002", n+1))
		b.Put(t, now)
		begin := time.Now()
		mend()
		f.awaitSet(one(), now)
		took = append(took, time.Since(begin))
		f.awaitStatus("the source back", well)
		if took[n] < time.Second {
			t.Logf("known %s after its return", took[n].Round(time.Millisecond))
			f.neverLost(one())
			return
		}
	}
	if slices.Min(took) > patience/8 {
		t.Errorf("changes were known %v after the server's return; want less than a second", took)
	}
	t.Logf("this machine is busy, or else it would be less than a second: changes were known %v after the server's return", took)
}

func flapping(t *testing.T, b Backend) {
	orSkip(t, b.Fail != nil, "this source's server can't be made to fail")
	b.Put(t, one(), two())
	f := follow(t, b.Open(t))
	f.awaitSet(one(), two())
	for n := range 6 {
		mend := b.Fail(t)
		now := moved(two(), fmt.Sprintf("10.1.2.%d:50002", n+1))
		b.Put(t, now)
		mend()
		f.awaitSet(one(), now)
	}
	f.neverLost(one())
}

func restart(t *testing.T, b Backend, kill bool) {
	orSkip(t, b.Restart != nil, "this source has no server")
	b.Put(t, one(), two())
	f := follow(t, b.Open(t))
	f.awaitSet(one(), two())
	b.Restart(t, kill)
	f.awaitStatus("the source back", well)
	b.Put(t, three())
	f.awaitSet(one(), two(), three())
	f.neverLost(one(), two())
}

func cutLink(t *testing.T, b Backend) {
	orSkip(t, b.Cut != nil, "this source has no link")
	b.Put(t, one(), two())
	f := follow(t, b.Open(t))
	f.awaitSet(one(), two())
	begin := time.Now()
	mend := b.Cut(t)
	b.Put(t, three())
	b.Delete(t, two())
	status := f.awaitStatus("a failing source", failing)
	t.Logf("noticed after %s", time.Since(begin).Round(time.Millisecond))
	if status.Instances != 2 {
		t.Errorf("status by a cut link %+v; want what was there to stand", status)
	}
	b.names(t, status.Err)
	mend()
	f.awaitSet(one(), three())
	f.awaitStatus("the source back", well)
	b.Delete(t, three())
	f.awaitSet(one())
	f.neverLost(one())
}

func slowLink(t *testing.T, b Backend) {
	orSkip(t, b.Slow != nil, "this source has no link")
	b.Put(t, one(), two())
	defer b.Slow(t, 300*time.Millisecond)()
	f := follow(t, b.Open(t))
	f.awaitSet(one(), two())
	b.Put(t, three())
	f.awaitSet(one(), two(), three())
	b.Delete(t, two())
	f.awaitSet(one(), three())
	f.neverLost(one(), three())
	if s := f.Status(); s.Err != nil {
		t.Errorf("status %+v; want that a slow server is not taken for a failing one", s)
	}
}

func forget(t *testing.T, b Backend) {
	orSkip(t, b.Forget != nil && b.Fail != nil, "this source's server has no history")
	b.Put(t, one(), two(), three())
	f := follow(t, b.Open(t))
	f.awaitSet(one(), two(), three())
	mend := b.Fail(t)
	f.awaitStatus("a failing source", failing)
	b.Delete(t, two())
	b.Forget(t)
	mend()
	f.awaitSet(one(), three())
	f.awaitStatus("the source back", well)
	b.Put(t, two())
	f.awaitSet(one(), two(), three())
	f.neverLost(one(), three())
}
