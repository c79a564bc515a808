package show

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// xdsLine counts the clients of xDS; it is empty where there are none.
func xdsLine(n *v1alpha1.XDSCounts) string {
	if n.GetClients() == 0 {
		return ""
	}
	line := Count(int(n.GetClients()), "client")
	if gateways := int(n.GetGateways()); gateways > 0 {
		line += ", of which " + Count(gateways, "gateway")
	}
	return line
}

// addXDS adds the clients that refuse what they were sent, in their words.
func (all *problems) addXDS(s *v1alpha1.StatusResponse, now time.Time) {
	more := int(s.GetXdsCounts().GetRefusing())
	for _, c := range s.GetXds() {
		if len(c.GetRejections()) > 0 {
			more--
		}
		for _, r := range c.GetRejections() {
			all.add("xds client", xdsName(c), fmt.Sprintf("refuses %s of revision %d%s: %s", r.GetType(), r.GetRevision(), since(r.GetSinceUnixMs(), now), r.GetError()),
				fmt.Sprintf("revision %d", r.GetRevision()), since(r.GetSinceUnixMs(), now))
		}
	}
	if more > 0 {
		all.add("xds client", "", fmt.Sprintf("%d more refuse what they were sent", more), fmt.Sprint(more))
	}
}

// xdsName is the app in the client's certificate, and the node that it says it is.
func xdsName(c *v1alpha1.XDSClient) string {
	app := c.GetApp().GetNamespace() + "/" + c.GetApp().GetId()
	if node := strings.TrimPrefix(strings.TrimPrefix(c.GetNode(), app), "/"); node != "" {
		app += " (" + node + ")"
	}
	return app
}

// xdsClients lists the clients of xDS that a status has.
func xdsClients(w io.Writer, s *v1alpha1.StatusResponse, now time.Time) error {
	all := s.GetXds()
	if len(all) == 0 {
		return nil
	}
	Say(w, "\n")
	table := make([][]string, 0, len(all))
	for _, c := range all {
		protocol, refuses := "state of the world", ""
		if c.GetDelta() {
			protocol = "delta"
		}
		for i, r := range c.GetRejections() {
			if i > 0 {
				refuses += ", "
			}
			refuses += r.GetType()
		}
		as := "app"
		if c.GetGateway() {
			as = "gateway"
		}
		table = append(table, []string{xdsName(c), as, c.GetProgram(), protocol, age(c.GetSinceUnixMs(), now), refuses})
	}
	if err := rows(w, []string{"XDS CLIENT", "AS", "PROGRAM", "PROTOCOL", "SINCE", "REFUSES"}, table, "PROGRAM", "PROTOCOL"); err != nil {
		return err
	}
	if more := int(s.GetXdsCounts().GetClients()) - len(all); more > 0 {
		Say(w, "%d more clients of xDS\n", more)
	}
	return nil
}
