package kubernetes

import (
	"errors"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// message is why an object is refused, a line for each mistake, without the object's
// name: it stands in the object's own status.
func message(key catalog.Key, err error) string {
	text := err.Error()
	var all api.Errors
	if errors.As(err, &all) {
		lines := make([]string, len(all))
		for i, e := range all {
			lines[i] = strings.TrimPrefix(e.Error(), where(key)+": ")
		}
		text = strings.Join(lines, "\n")
	}
	return catalog.Clip(text, longestMessage)
}
