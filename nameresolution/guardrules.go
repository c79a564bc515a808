package nameresolution

import (
	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// access is who may call this sidecar's app, as the service said last. It is immutable.
type access struct {
	catalog.Access
	digest      []byte // by which it is resumed; nil where a part could not be read
	provisional bool   // the service may not have known all apps that run here
	untold      bool   // the service is too old to tell
}

// known is what a hello says of it.
func (a *access) known() []byte {
	if a == nil || a.untold {
		return nil
	}
	return a.digest
}

// with is the access after a message. The error names what of it could not be read.
func (a *access) with(m *pb.Access) (*access, error) {
	var from *catalog.Access
	if a != nil && !a.untold {
		from = &a.Access
	}
	to, err := wire.ParseAccess(from, m)
	next := &access{Access: *to, provisional: m.GetProvisional()}
	if err == nil && wire.SameAccess(m.GetDigest(), to) {
		next.digest = m.GetDigest()
	}
	return next, err
}

// message is the whole access as one message, for the file of the last good view.
func (a *access) message() *pb.Access {
	if a == nil || a.untold {
		return nil
	}
	m := wire.Access(nil, &a.Access)
	m.Provisional = a.provisional
	return m
}

// takeAccess takes in who may call the app. The first message on a channel follows from what its
// hello named.
func (c *client) takeAccess(from *channel, m *pb.Access) {
	base := c.access
	if !from.toldAccess {
		from.toldAccess, base = true, from.access
	}
	next, err := base.with(m)
	if err != nil {
		c.log.Warn("some callers of this app can't be read, and are not let in; is the service newer than this sidecar?",
			"err", err, "app", c.app.String(), "revision", m.GetRevision())
	}
	c.access = next
	c.publishMirror(c.mirror)
}
