package show

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// Status writes how a service is, for people, with its faults first. With details, each peer and
// source has all facts.
func Status(w io.Writer, s *v1alpha1.StatusResponse, details bool, now time.Time) error {
	Summary(w, s, now)
	Say(w, "\n")
	err := pairs(w, "", [][2]string{
		{"cluster", s.GetCluster()},
		{"replica", s.GetReplica()},
		{"version", s.GetVersion()},
		{"running", "for " + age(s.GetStartedUnixMs(), now)},
		{"domain", s.GetDomain()},
		{"identity", identityLine(s)},
		{"store", StoreLine(s, now)},
		{"dns", dnsLine(s.GetDns())},
		{"forward", forwardLine(s.GetDns(), now)},
		{"xds", xdsLine(s.GetXdsCounts())},
		{"policies", policiesLine(s.GetPolicies())},
		{"revision", fmt.Sprint(s.GetRevision())},
		{"apps", fmt.Sprintf("%d, %d exported", s.GetApps(), s.GetExports())},
		{"instances", fmt.Sprintf("%d, %d draining, %d streams", s.GetInstances(), s.GetDraining(), s.GetStreams())},
		{"objects", fmt.Sprintf("%d, %d refused", s.GetObjects(), len(s.GetRefused()))},
		{"peers", noPeers(s)},
	})
	if err = errors.Join(err, Missing(w, s.GetMissingReplicas())); err != nil {
		return err
	}
	if err := sources(w, s.GetSources(), details, now); err != nil {
		return err
	}
	dns(w, s.GetDns(), now)
	if err := peers(w, s.GetPeers(), details, now); err != nil || !details {
		return err
	}
	if err := xdsClients(w, s, now); err != nil {
		return err
	}
	for _, p := range naturally(s.GetPeers()) {
		if err := Peer(w, s, p.GetCluster(), now); err != nil {
			return err
		}
	}
	return nil
}

// noPeers says why there are none.
func noPeers(s *v1alpha1.StatusResponse) string {
	if len(s.GetPeers()) > 0 {
		return ""
	}
	return "none: no Cluster object with a gateway here, so no other cluster is asked"
}

func identityLine(s *v1alpha1.StatusResponse) string {
	switch {
	case s.GetIdentity() == "":
		return "none: " + s.GetIdentityError()
	case s.GetIdentityError() != "":
		return s.GetIdentity() + " (" + s.GetIdentityError() + ")"
	default:
		return s.GetIdentity()
	}
}

// StoreLine is which store a service has, and how it is.
func StoreLine(s *v1alpha1.StatusResponse, now time.Time) string {
	store := s.GetStore()
	name := store.GetName()
	if store.GetPath() != "" {
		name += " " + store.GetPath()
	}
	switch away := Away(s, now); {
	case away != "":
		return name + ", " + away
	case !store.GetReady():
		return name + ", not read yet"
	case store.GetVersion() != "":
		return name + ", version " + short(store.GetVersion())
	default:
		return name
	}
}

// Away says in words for how long, since when and why the config store can't be read, and the
// objects that stand meanwhile: "away for 12s, since 14:03:11: …; serving revision 41, 3 objects".
// It is empty while the store can be read. The time of day is this machine's.
func Away(s *v1alpha1.StatusResponse, now time.Time) string {
	store := s.GetStore()
	if store.GetError() == "" {
		return ""
	}
	since := time.UnixMilli(store.GetFailingUnixMs())
	layout := time.TimeOnly
	if now.Format(time.DateOnly) != since.Format(time.DateOnly) {
		layout = time.DateTime
	}
	stands := "nothing was read of it yet"
	if store.GetReady() {
		stands = fmt.Sprintf("serving revision %d, %d objects", s.GetRevision(), s.GetObjects())
	}
	// Backends begin their errors with what the reader has just read.
	why := strings.TrimPrefix(store.GetError(), "store "+store.GetName()+": ")
	return fmt.Sprintf("away for %s, since %s: %s; %s", max(0, now.Sub(since)).Round(time.Second), since.Format(layout), why, stands)
}

// short is the beginning of a version, which some stores make long.
func short(version string) string {
	const most = 32
	if len(version) <= most {
		return version
	}
	return version[:most] + "…"
}

// age is the time since a moment.
func age(unixMs int64, now time.Time) string { return Span(max(0, now.Sub(time.UnixMilli(unixMs)))) }

// Span is a time in the two largest units or so.
func Span(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}
