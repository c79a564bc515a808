package resolverservice

import (
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// describePeer says how a peer's resolver service is heard; empty where there is no link
// to one.
func (s *Service) describePeer(cluster string) string {
	for _, p := range s.links.Status() {
		if p.GetCluster() == cluster {
			return describe(p, time.Now())
		}
	}
	return ""
}

// describe is the state of a link in one line.
func describe(p *v1alpha1.PeerStatus, now time.Time) string {
	parts := []string{p.GetState() + " for " + since(p.GetSinceUnixMs(), now)}
	switch {
	case p.GetLastWordUnixMs() == 0:
		parts = append(parts, "never heard")
	default:
		parts = append(parts, "last heard "+since(p.GetLastWordUnixMs(), now)+" ago")
	}
	if left := p.GetLeaseLeftMs(); left > 0 {
		parts = append(parts, fmt.Sprintf("its word holds for another %s", tenths(time.Duration(left)*time.Millisecond)))
	}
	if until := p.GetDampedUntilUnixMs(); until != 0 {
		parts = append(parts, fmt.Sprintf("not relied on for up to %s since its lease ran out %d times",
			tenths(max(0, time.UnixMilli(until).Sub(now))), p.GetLapses()))
	}
	if p.GetHears() != "" {
		parts = append(parts, "hears this cluster: "+p.GetHears())
	}
	text := strings.Join(parts, ", ")
	if p.GetError() != "" {
		text += ": " + p.GetError()
	}
	return text
}

// since is the time from a moment to now.
func since(unixMs int64, now time.Time) string {
	return tenths(max(0, now.Sub(time.UnixMilli(unixMs))))
}

func tenths(d time.Duration) string {
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
