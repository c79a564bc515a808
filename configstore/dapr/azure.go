package dapr

import (
	"fmt"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
)

func checkAzure(c component) error {
	host, conn := c.property("host"), c.property("connectionString")
	if (host == "") == (conn == "") {
		return fmt.Errorf("component %s: want one of host and connectionString", c.name)
	}
	return nil
}

// azureHost is the address of the store.
func azureHost(c component) string {
	for part := range strings.SplitSeq(c.property("connectionString"), ";") {
		if address, ok := strings.CutPrefix(part, "Endpoint="); ok {
			return address
		}
	}
	return c.property("host")
}

// requestMetadata is what Dapr's store takes with each request.
func (s settings) requestMetadata() map[string]string {
	m := map[string]string{}
	if s.label != "" {
		m["label"] = s.label
	}
	if s.component.kind == kindAzure {
		m["sentinelKey"] = s.names.key(headPath)
	}
	return m
}

// howToWriteAzure is what to do instead of a write.
const howToWriteAzure = "az appconfig kv set --key " + api.KeyPrefix + "<Kind>/<namespace>/<name> --value <JSON>, then set " + headPath + " to another text"
