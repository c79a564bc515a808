package check

import (
	"errors"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/identity"
)

// Way is what a command has met on its way to a service.
type Way struct {
	Service string // its address
	Sentry  error  // of [identity.Source.CheckSentry]
	// BySentry tells that the command's certificate is from there.
	BySentry bool
	Err      error // of the call, in words; nil: the service answers
	// Own is an error of the command's own certificate: the service was not asked.
	Own bool
	// Denied tells that the service answers, and refuses this caller.
	Denied bool
	// Old tells that what answers does not know the call.
	Old bool

	Version, ServiceVersion string
	// Ahead is by how much the service's clock is ahead of the command's, give or take Unsure.
	Ahead, Unsure time.Duration
}

// Command makes the checks of the command's side.
func Command(w *Way) (all []Result) {
	for _, c := range Table {
		if c.command == nil || c.ofSentry && !w.BySentry {
			continue
		}
		results := c.command(w)
		if len(results) == 0 && (w.Err == nil || c.ofSentry && w.Sentry == nil) {
			results = []Result{{Level: OK, Kind: ofService, Name: w.Service}}
		}
		for _, r := range results {
			r.Check = c.Name
			all = append(all, r)
		}
	}
	return all
}

func (w *Way) fault(level Level, found, fix string) []Result {
	return []Result{{Level: level, Kind: ofService, Name: w.Service, Found: found, Fix: fix}}
}

// untrusted tells whether the two ends do not accept each other's certificates.
func (w *Way) untrusted() bool {
	if w.Err == nil || w.Denied || w.Old {
		return false
	}
	text := w.Err.Error()
	for _, part := range []string{"identity: ", "certificate", "tls: ", "handshake", "refused: it is app", "--cluster wants"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return w.Own
}

// reachable finds a service that does not answer.
func reachable(w *Way) []Result {
	if w.Err == nil || w.Denied || w.Old || w.Sentry != nil || w.untrusted() {
		return nil
	}
	found, fix := split(w.Err.Error())
	return w.fault(Fail, found, fix)
}

// trusted finds roots or names that do not fit: the command's or the service's.
func trusted(w *Way) []Result {
	if w.Sentry != nil || !w.untrusted() {
		return nil
	}
	found, fix := split(w.Err.Error())
	if strings.Contains(found, "--cluster wants") {
		fix = "correct --server or --cluster"
	}
	return w.fault(Fail, found, fix)
}

// allowed finds that the caller is no operator.
func allowed(w *Way) []Result {
	if !w.Denied {
		return nil
	}
	found, fix := split(w.Err.Error())
	return w.fault(Fail, found, fix)
}

func sentryReached(w *Way) []Result {
	all := sentryAway(w.Sentry)
	for i := range all {
		all[i].Fix += "; on the service's own machine, --socket needs no certificate"
	}
	return all
}

func sentryTrusted(w *Way) []Result { return otherSentry(w.Sentry) }

// sentryAway is the fault of a Sentry that can't be reached.
func sentryAway(err error) []Result {
	if err == nil || errors.Is(err, identity.ErrOtherSentry) {
		return nil
	}
	return []Result{{Level: Fail, Kind: aSentry, Found: err.Error(),
		Fix: "start Sentry, or correct its address; certificates that are there count until they expire"}}
}

// otherSentry is the fault of a Sentry with another root, or of another trust domain.
func otherSentry(err error) []Result {
	if !errors.Is(err, identity.ErrOtherSentry) {
		return nil
	}
	return []Result{{Level: Fail, Kind: aSentry, Found: err.Error(),
		Fix: "correct Sentry's address, or take its ca.crt as trust anchors; the trust domain and namespace are the control plane's"}}
}

// commandClock finds a service whose clock differs from the command's.
func commandClock(w *Way) []Result {
	if w.Err != nil || w.Ahead.Abs()-w.Unsure <= maxSkew {
		return nil
	}
	return w.fault(Warn, "the clock of the service is "+skew(w.Ahead)+" that of this machine", setClocks)
}

// commandVersion finds a service of another release.
func commandVersion(w *Way) []Result {
	switch {
	case w.Old:
		found, fix := split(w.Err.Error())
		return w.fault(Fail, found, "use the command of the service's release, or "+fix)
	case w.Err == nil && apart(w.Version, w.ServiceVersion):
		return w.fault(Warn, "it is of version "+w.ServiceVersion+", and this command of "+w.Version, "use the command of the service's release")
	}
	return nil
}
