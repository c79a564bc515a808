package wire

import (
	"fmt"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// maxTakes bounds the routes to guests of an entry that comes in.
const maxTakes = 10_000

func appendTake(m []byte, t *catalog.TakenRoute) []byte {
	var room [512]byte
	m = appendMessage(m, takeRoute, appendRoute(room[:0], &t.Route))
	if t.Header == (catalog.HeaderValue{}) {
		return m
	}
	return appendMessage(m, takeHeader, appendText(appendText(room[:0], headerName, t.Header.Name), headerValue, t.Header.Value))
}

func parseTakes(app catalog.App, all []*pb.ViewTake) ([]catalog.TakenRoute, error) {
	if len(all) > maxTakes {
		return nil, fmt.Errorf("%d routes to guests; at most %d are taken", len(all), maxTakes)
	}
	var takes []catalog.TakenRoute
	for i, m := range all {
		r, err := parseRoute(app, m.GetRoute())
		t := catalog.TakenRoute{Route: r}
		if err == nil && m.GetHeader() != nil {
			t.Header, err = ParseHeader(m.GetHeader())
		}
		if err == nil && r.Usable() && !r.Gateway {
			err = fmt.Errorf("%s is reached without a gateway, which no guest is", r.Cluster)
		}
		if err != nil {
			return nil, fmt.Errorf("route %d to a guest: %w", i, err)
		}
		takes = append(takes, t)
	}
	return takes, nil
}

// ParseHeader reads a header and checks it.
func ParseHeader(m *pb.HeaderValue) (catalog.HeaderValue, error) {
	h := catalog.HeaderValue{Name: m.GetName(), Value: m.GetValue()}
	return h, h.Check()
}
