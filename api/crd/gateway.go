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
