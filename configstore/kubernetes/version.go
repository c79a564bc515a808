package kubernetes

import (
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// formatVersion is how far each of the resources has been read: their resourceVersions,
// with dots between them.
func formatVersion(at []string) configstore.Version {
	return configstore.Version(strings.Join(at, "."))
}

// newer tells whether a resourceVersion comes after another, or can't be compared. They
// are numbers, which grow: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
func newer(a, b string) bool {
	x, xErr := strconv.ParseUint(a, 10, 64)
	y, yErr := strconv.ParseUint(b, 10, 64)
	return x > y || xErr != nil || yErr != nil
}
