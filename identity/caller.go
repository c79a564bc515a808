package identity

import "fmt"

// CallerHeader is the header in which a sidecar tells its app of the caller's certificate, where the
// app asks for it. It takes out those that a caller has sent.
const CallerHeader = "Isthmus-Caller"

// DescribeCaller is the value of a [CallerHeader]: a dictionary of strings by RFC 9651. Without a
// cluster it has none. No name has a character that would have to be escaped.
func DescribeCaller(id ID, cluster string) string {
	if cluster != "" {
		cluster = fmt.Sprintf(", cluster=%q", cluster)
	}
	return fmt.Sprintf("namespace=%q, app=%q%s, trust-domain=%q", id.App.Namespace, id.App.ID, cluster, id.TrustDomain)
}
