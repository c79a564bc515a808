package crd

// What a gateway's address looks like: a DNS name, an IPv4 or an IPv6 address, with or
// without a port.
const (
	anyLabel  = "[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?"
	dnsName   = anyLabel + "([.]" + anyLabel + ")*[.]?"
	ipv6      = "[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]+"
	portGroup = "(:[0-9]{1,5})?"
)

// longestAddress is room for the longest DNS name and a port.
const longestAddress = 253 + len(":65535")

// gateway is for all apps, or for one. That those for one app have one port, CEL could tell
// at too high a cost for so many: the resolver service does, by a condition.
func gateway(s *schema) {
	s.Required = []string{"address"}
	keepNull(s)
	s.Rules = []rule{{
		Rule:    "has(self.app) == has(self.namespace)",
		Message: "has one of app and namespace, and a Cluster has no namespace that could stand for the app's; write both, or none for a gateway for all apps",
	}, {
		Rule:    `!has(self.app) || self.address.matches('^([^:]*|\\[.*\\]):[0-9]+$')`,
		Message: "is for one app and has no port; callers without a server name dial the one that their own sidecars listen on: write it, such as \"203.0.113.8:50002\"",
	}}
}

func address(s *schema) {
	s.Pattern = "^(" + dnsName + portGroup + `|\[` + ipv6 + `\]` + portGroup + "|" + ipv6 + ")$"
	s.MinLength, s.MaxLength = number(1), number(longestAddress)
	s.Rules = []rule{{
		Rule:       `!self.matches('^([^:]*|\\[.*\\]):[0-9]+$') || (int(self.substring(self.lastIndexOf(':') + 1)) >= 1 && int(self.substring(self.lastIndexOf(':') + 1)) <= 65535)`,
		Message:    "gateway address: the port is not a number from 1 to 65535; write an IP or a DNS name, with or without a port",
		Expression: `'gateway address "' + self + '": port "' + self.substring(self.lastIndexOf(':') + 1) + '" is not a number from 1 to 65535; write an IP or a DNS name, with or without a port'`,
	}, {
		Rule:       `!self.matches('.*:.*:.*') || isIP(self.replace('[', '').replace(']', '')) || (self.startsWith('[') && self.contains(']:') && isIP(self.substring(1, self.indexOf(']:'))))`,
		Message:    "gateway address: is no IP; want host:port, such as \"203.0.113.7:15443\"",
		Expression: `'gateway address "' + self + '": want host:port, such as "203.0.113.7:15443"'`,
	}}
}
