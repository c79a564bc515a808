package introductions

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// TestOneIntroducerIsBounded holds the bounds in number and size of what is kept.
func TestOneIntroducerIsBounded(t *testing.T) {
	west := newCluster(t, "west", "")
	west.write(strings.Replace(hubRule, "eu-*", "*", 1))
	said := func(name, gateway string) *v1alpha1.Introduction {
		return &v1alpha1.Introduction{Object: api.Introduction(&catalog.Cluster{Name: name, Gateways: []string{gateway}}), Digest: 1}
	}
	m := &v1alpha1.IntroductionsResponse{}
	for i := range MaxClusters + 5 {
		m.Put = append(m.Put, said(fmt.Sprintf("c-%05d", i), "203.0.113.2:15443"))
	}
	m.Put = append(m.Put, said("No Name", "203.0.113.2:15443"))
	for part := range slices.Chunk(m.Put, MaxClusters) {
		if err := west.heard.Hear("hub", &v1alpha1.IntroductionsResponse{Put: part}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := west.says("hub"), "10005 told; 10000 taken; 5 over"; got != want {
		t.Errorf("of hub %q, want %q", got, want)
	}
	large := said("c-00000", "203.0.113.2:15443")
	large.Object.Spec.Labels = []string{strings.Repeat("l", api.MaxIntroduction)}
	if err := west.heard.Hear("hub", &v1alpha1.IntroductionsResponse{Put: []*v1alpha1.Introduction{large}}); err != nil {
		t.Fatal(err)
	}
	if got := west.says("hub"); !strings.Contains(got, "9999 taken; 1 refused; 5 over; c-00000: is 13") {
		t.Errorf("of hub %q", got)
	}
	if n := west.heard.by["hub"].bytes; n > maxBytes || n < MaxClusters*20 {
		t.Errorf("%d bytes are kept", n)
	}
	if known, _ := west.heard.Known("hub"); len(known) != MaxClusters {
		t.Errorf("%d are known", len(known))
	}
}

// TestOneChangeIsOneChange holds that a cluster that changes touches no other one.
func TestOneChangeIsOneChange(t *testing.T) {
	w := newWorld(t)
	for i := range 300 {
		w.hub.write(strings.Replace(eu, "eu-1", fmt.Sprintf("eu-%d", i), 1))
	}
	w.west.write(hubRule)
	w.pass()
	w.hub.write(strings.Replace(eu, "113.2", "113.8", 1))
	now, _ := w.hub.told.Follow()
	put, removed := now.Since(w.toHub.told, "west")
	if len(put) != 1 || len(removed) != 0 {
		t.Fatalf("told %d, removed %d", len(put), len(removed))
	}
	var change configstore.Change
	w.west.heard.deriver = derives{&change}
	if err := w.west.heard.Hear("hub", &v1alpha1.IntroductionsResponse{Put: put}); err != nil || len(change.Objects) != 1 || len(change.Deleted) != 0 {
		t.Errorf("%v: %+v", err, change)
	}
}

type derives struct{ change *configstore.Change }

func (d derives) Derive(_ string, derive func(*configstore.Change)) error {
	derive(d.change)
	return nil
}

// FuzzIntroduction holds that what any bytes introduce is an object by the rules of Cluster objects, as
// its own text says again, and no more than an introduction has; and that no bytes break Heard.
func FuzzIntroduction(f *testing.F) {
	add := func(c *catalog.Cluster, edit func(*v1alpha1.Cluster)) {
		m := api.Introduction(c)
		edit(m)
		text, err := proto.Marshal(&v1alpha1.IntroductionsResponse{Put: []*v1alpha1.Introduction{{Object: m, Digest: 7}}, Removed: []string{"eu-2"}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	good := &catalog.Cluster{Name: "eu-1", Gateways: []string{"203.0.113.2:15443"}, Labels: []string{"region=eu"}, Trust: catalog.Trust{Domain: "eu.corp"}}
	add(good, func(*v1alpha1.Cluster) {})
	add(good, func(m *v1alpha1.Cluster) { m.Spec.Guest = &v1alpha1.Guest{} })
	add(good, func(m *v1alpha1.Cluster) { m.Kind, m.Metadata.Namespace = "AppExport", "a" })
	add(good, func(m *v1alpha1.Cluster) { m.Metadata.Name = "../eu" })
	add(good, func(m *v1alpha1.Cluster) { m.Spec.Gateways[0].Address = "" })
	f.Fuzz(func(t *testing.T, text []byte) {
		m := &v1alpha1.IntroductionsResponse{}
		if proto.Unmarshal(text, m) != nil {
			return
		}
		west := newCluster(t, "west", "")
		west.write(strings.Replace(hubRule, "eu-*", "*", 1))
		if err := west.heard.Hear("hub", m); err != nil {
			t.Fatal(err)
		}
		west.says("hub")
		for name, c := range west.heard.derived {
			object := api.EncodeJSON(c)
			again, err := api.DecodeJSON(api.KeyPath(c.Key()), object)
			if err != nil || !bytes.Equal(api.EncodeJSON(again), object) {
				t.Errorf("%s is no object: %v", object, err)
			}
			if c.Name != name || c.Network != "" || c.Guest != nil || c.Tunnel != "" || c.Introduces != nil || c.IntroduceTo != nil || c.Trust.Rotation != "" || len(c.Gateways) == 0 {
				t.Errorf("introduced: %s", object)
			}
		}
	})
}

// FuzzFile holds that no content of the file breaks a service that starts.
func FuzzFile(f *testing.F) {
	w := newWorld(f)
	w.hub.write(eu)
	w.west.write(hubRule)
	w.pass()
	var text bytes.Buffer
	if err := w.west.heard.save(&text); err != nil {
		f.Fatal(err)
	}
	f.Add(text.Bytes())
	f.Add(text.Bytes()[:text.Len()/2])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, text []byte) {
		saved, err := parse(text)
		for name, m := range saved {
			if err != nil || catalog.CheckCluster(name) != nil || m.GetCluster() != name {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}

// TestOneMessageIsBounded holds that a message costs no more than a cluster's introductions may, however
// often it names one.
func TestOneMessageIsBounded(t *testing.T) {
	w := newWorld(t)
	w.hub.write(eu)
	w.west.write(hubRule)
	now, _ := w.hub.told.Follow()
	put, _ := now.First("west", nil)
	last := proto.CloneOf(put[0])
	last.Object.Spec.Gateways[0].Address = "203.0.113.9:15443"
	if n := len(read([]*v1alpha1.Introduction{put[0], put[0], last})); n != 1 {
		t.Errorf("%d are read of one name", n)
	}
	if err := w.west.heard.Hear("hub", &v1alpha1.IntroductionsResponse{Put: []*v1alpha1.Introduction{put[0], last}}); err != nil {
		t.Fatal(err)
	}
	if got, want := w.west.shows(), "eu-1 by hub 203.0.113.9:15443, hub"; got != want {
		t.Errorf("west has %q, want %q", got, want)
	}
	for _, m := range []*v1alpha1.IntroductionsResponse{{Put: make([]*v1alpha1.Introduction, MaxClusters+1)}, {Removed: make([]string, 2*MaxClusters+1)}} {
		if err := w.west.heard.Hear("hub", m); err == nil {
			t.Error("it was read")
		}
	}
}

// TestLabelsOfOthersChooseNobody holds that labels which one cluster gives another do not have a third tell
// it of more.
func TestLabelsOfOthersChooseNobody(t *testing.T) {
	hub, third, eu9 := newCluster(t, "hub", ""), newCluster(t, "third", ""), newCluster(t, "eu-9", "")
	hub.write(strings.Replace(hubRule, "hub: {", "third: {", 1), `asia: {gateways: [{address: "203.0.113.3"}], introduceTo: {labels: [tier=secret]}}`)
	third.write("hub: {}", `eu-9: {gateways: [{address: "203.0.113.9"}], labels: [tier=secret], introduceTo: {names: ["*"]}}`)
	(&link{from: third, to: hub}).pass()
	if got, want := hub.shows(), "asia, eu-9 by third 203.0.113.9:15443, third"; got != want {
		t.Fatalf("the hub has %q, want %q", got, want)
	}
	eu9.write(strings.Replace(hubRule, "eu-*", "*", 1))
	(&link{from: hub, to: eu9}).pass()
	if got, want := eu9.shows(), "hub"; got != want {
		t.Errorf("eu-9 has %q, want %q", got, want)
	}
}
