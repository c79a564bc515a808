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
			c := &v1alpha1.TrustStatus{
				Use: root.Use, Cluster: root.Cluster, Subject: root.Subject,
				NotBeforeUnixMs: root.NotBefore.UnixMilli(), NotAfterUnixMs: root.NotAfter.UnixMilli(),
			}
			if outOfTime(c, now) {
				Say(w, "warning: %s:%d: %s: %s\n", cluster.Source.File, cluster.Source.Line, certified(c), Advice(c, now))
			}
		}
	}
}

// outOfTime tells whether a certificate counts at another time than now.
func outOfTime(c *v1alpha1.TrustStatus, now time.Time) bool {
	state := CertificateState(c, now)
	return state == identity.Expired || state == identity.Early
}
