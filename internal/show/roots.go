package show

import (
	"io"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// WarnOfRoots writes a line for each root of a Cluster among objects that does not count
// now: it has expired, or is not valid yet. It is no mistake, since roots may be put in
// before their time, and stay a while beside the next.
func WarnOfRoots(w io.Writer, all []catalog.Object, now time.Time) {
	for _, object := range all {
		cluster, ok := object.(*catalog.Cluster)
		if !ok {
			continue
		}
		for _, root := range identity.RootsOf(cluster.Name, cluster.Trust) {
			c := CertificateOf(&v1alpha1.TrustStatus{
				Use: root.Use, Cluster: root.Cluster, Subject: root.Subject,
				NotBeforeUnixMs: root.NotBefore.UnixMilli(), NotAfterUnixMs: root.NotAfter.UnixMilli(),
			}, now)
			if c.outOfTime() {
				Say(w, "warning: %s:%d: %s: %s\n", cluster.Source.File, cluster.Source.Line, c.who(), c.Advice())
			}
		}
	}
}

// outOfTime tells whether the certificate counts at another time than now.
func (c *Certificate) outOfTime() bool { return c.State == certExpired || c.State == certEarly }
