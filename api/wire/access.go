package wire

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Access is the message that turns one access into another; from is nil for a whole one.
func Access(from, to *catalog.Access) *pb.Access {
	m := &pb.Access{Whole: from == nil, Guard: to.Mode.String(), Revision: to.Revision, Digest: AccessDigest(to)}
	if from == nil {
		from = &catalog.Access{}
	}
	m.Declared, m.Undeclared = appSetEdit(from.Declared, to.Declared), appSetEdit(from.Undeclared, to.Undeclared)
	if m.RemoteChanged = !to.Remote.Same(from.Remote); m.RemoteChanged {
		for _, c := range to.Remote.All() {
			m.Remote = append(m.Remote, &pb.RemoteCaller{Cluster: c.Cluster, Domain: c.Domain, Namespace: c.Namespace, App: c.App})
		}
	}
	return m
}

func appSetEdit(from, to *catalog.AppSet) *pb.AppSetEdit {
	put, removed := to.Diff(from)
	if len(put)+len(removed) == 0 {
		return nil
	}
	m := &pb.AppSetEdit{Put: make([]*pb.App, len(put)), Removed: make([]*pb.App, len(removed))}
	for i, app := range put {
		m.Put[i] = App(app)
	}
	for i, app := range removed {
		m.Removed[i] = App(app)
	}
	return m
}

// ParseAccess is what a message makes of the access before it. It leaves out callers that can't
// be read, so that they are not let in; the error names them. Without a digest, it is sent whole
// on the next stream.
func ParseAccess(from *catalog.Access, m *pb.Access) (*catalog.Access, error) {
	if from == nil || m.GetWhole() {
		from = &catalog.Access{}
	}
	to := *from
	var errs []error
	if mode, err := catalog.ParseGuardMode(m.GetGuard()); err == nil {
		to.Mode = mode
	} else {
		errs = append(errs, err)
	}
	to.Revision = m.GetRevision()
	parse := func(set *catalog.AppSet, m *pb.AppSetEdit) *catalog.AppSet {
		return set.With(parseApps(m.GetPut(), &errs), parseApps(m.GetRemoved(), &errs))
	}
	to.Declared, to.Undeclared = parse(to.Declared, m.GetDeclared()), parse(to.Undeclared, m.GetUndeclared())
	if m.GetRemoteChanged() {
		all := make([]catalog.RemoteCaller, 0, len(m.GetRemote()))
		for _, r := range m.GetRemote() {
			c := catalog.RemoteCaller{Cluster: r.GetCluster(), Domain: r.GetDomain(), Namespace: r.GetNamespace(), App: r.GetApp()}
			if err := checkRemoteCaller(c); err != nil {
				errs = append(errs, err)
				continue
			}
			all = append(all, c)
		}
		to.Remote = catalog.NewRemoteCallers(all)
	}
	return &to, errors.Join(errs...)
}

func parseApps(all []*pb.App, errs *[]error) []catalog.App {
	apps := make([]catalog.App, 0, len(all))
	for _, m := range all {
		app, err := ParseApp(m)
		if err != nil {
			*errs = append(*errs, err)
			continue
		}
		apps = append(apps, app)
	}
	return apps
}

func checkRemoteCaller(c catalog.RemoteCaller) error {
	err := catalog.CheckCluster(c.Cluster)
	if c.Namespace != "" {
		err = cmp.Or(err, catalog.CheckNamespace(c.Namespace))
	}
	if c.App != "" {
		err = cmp.Or(err, catalog.CheckAppID(c.App))
	}
	if err != nil {
		return fmt.Errorf("remote caller: %w", err)
	}
	return nil
}

// AccessDigest is the digest of whom an access lets in, and by which mode: the same in every
// process.
func AccessDigest(a *catalog.Access) []byte {
	b := []byte{byte(a.Mode)}
	b = append(b, a.Declared.Digest()...)
	b = append(b, a.Undeclared.Digest()...)
	for _, c := range a.Remote.All() {
		b = text(text(text(text(b, c.Cluster), c.Domain), c.Namespace), c.App)
	}
	sum := sha256.Sum256(b)
	return sum[:16]
}

// SameAccess tells whether a digest is that of an access.
func SameAccess(digest []byte, a *catalog.Access) bool { return bytes.Equal(digest, AccessDigest(a)) }
