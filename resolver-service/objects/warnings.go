package objects

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// mostWarnings is how many an answer has; more than that nobody reads.
const mostWarnings = 20

// warnings are about addresses that an AppInstance has and another one too, of those that are
// written and those that are there. It is refused to nobody: an address may be on its way from
// one to the other.
func (s *Server) warnings(writes []configstore.Write) (all []string) {
	written := map[catalog.Key]*catalog.AppInstance{}
	touched := map[catalog.Key]bool{}
	for _, w := range writes {
		touched[w.Key()] = true
		if i, ok := w.Object.(*catalog.AppInstance); ok {
			written[i.Key()] = i
		}
	}
	if len(written) == 0 {
		return nil
	}
	var placed []*catalog.AppInstance
	there, _ := s.feed.Instances().Load()
	for _, i := range there {
		if !touched[i.Key()] {
			placed = append(placed, i)
		}
	}
	for _, i := range written {
		placed = append(placed, i)
	}
	left := 0
	for _, d := range catalog.DuplicateAddresses(placed) {
		switch {
		case !touched[d.Instance.Key()] && !touched[d.First.Key()]:
		case len(all) == mostWarnings:
			left++
		default:
			all = append(all, d.String())
		}
	}
	if left > 0 {
		all = append(all, fmt.Sprintf("%d more AppInstance objects have an address that another has, too; isthmus status counts them, and with -v names the first hundred", left))
	}
	return all
}
