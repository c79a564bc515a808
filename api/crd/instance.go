package crd

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// instanceRules are those of AppInstance and its health check.
func instanceRules() map[string]func(*schema) {
	return map[string]func(*schema){
		"AppInstance": func(s *schema) {
			s.Required = []string{"spec"}
			s.Rules = []rule{nameRule("an instance's name", catalog.CheckInstance)}
		},
		"AppInstanceSpec":         func(s *schema) { s.Required = []string{"app", "address"}; keepNull(s) },
		"AppInstanceSpec.app":     appID,
		"AppInstanceSpec.address": instanceAddress,
		"AppInstanceSpec.version": func(s *schema) {
			s.Pattern, s.MinLength, s.MaxLength = "^[-._+a-zA-Z0-9]+$", number(1), number(catalog.MaxVersion)
		},
		"AppInstanceSpec.zone":       func(s *schema) { text(s, `^[\pL\pM\pN\pP\pS ]+$`, catalog.MaxZone) },
		"HealthCheck":                healthCheck,
		"HealthCheck.interval":       func(s *schema) { duration(s, api.MinInterval, api.MaxInterval) },
		"HealthCheck.timeout":        func(s *schema) { duration(s, api.MinTimeout, api.MaxInterval) },
		"HealthCheck.healthyAfter":   func(s *schema) { within(s, 1, api.MaxThreshold) },
		"HealthCheck.unhealthyAfter": func(s *schema) { within(s, 1, api.MaxThreshold) },
		"TCPCheck":                   keepNull,
		"TCPCheck.port":              func(s *schema) { within(s, 1, 65535) },
		"HTTPCheck":                  func(s *schema) { s.Required = []string{"port"}; keepNull(s) },
		"HTTPCheck.port":             func(s *schema) { within(s, 1, 65535) },
		"HTTPCheck.path":             func(s *schema) { text(s, "^/([!\"$&-~]|%[0-9A-Fa-f]{2})*$", api.MaxPath) },
		"HTTPCheck.scheme":           func(s *schema) { s.Enum = []string{"http", "https"} },
		"HTTPCheck.host":             func(s *schema) { text(s, "^[!-~]+$", api.MaxHost) },
		"GRPCCheck":                  keepNull,
		"GRPCCheck.port":             func(s *schema) { within(s, 1, 65535) },
		"GRPCCheck.service":          func(s *schema) { text(s, "^[!-~]+$", api.MaxService) },
	}
}

func text(s *schema, pattern string, most int) {
	s.Pattern, s.MinLength, s.MaxLength = pattern, number(1), number(most)
}

func within(s *schema, least, most int) { s.Minimum, s.Maximum = number(least), number(most) }

// longestIP is room for the longest IPv6 address, in brackets, and a port.
const longestIP = len("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535")

func instanceAddress(s *schema) {
	text(s, `^([0-9.]+|\[`+ipv6+`\]):[0-9]{1,5}$`, longestIP)
	const ip = `self.substring(0, self.lastIndexOf(':')).replace('[', '').replace(']', '')`
	s.Rules = []rule{{
		Rule:    "int(self.substring(self.lastIndexOf(':') + 1)) >= 1 && int(self.substring(self.lastIndexOf(':') + 1)) <= 65535",
		Message: "the port is not a number from 1 to 65535; write \"ip:port\", such as 10.0.0.5:50002",
	}, {
		Rule:    fmt.Sprintf("isIP(%[1]s) && (ip(%[1]s).isGlobalUnicast() || ip(%[1]s).isLoopback())", ip),
		Message: "is not the address of one host, or link-local; write \"ip:port\", such as 10.0.0.5:50002",
	}}
}

func healthCheck(s *schema) {
	keepNull(s)
	s.Rules = []rule{{
		Rule:    "(has(self.tcp) ? 1 : 0) + (has(self.http) ? 1 : 0) + (has(self.grpc) ? 1 : 0) == 1",
		Message: "wants exactly one way to check; write one of tcp, http and grpc",
	}, {
		Rule:    fmt.Sprintf("!has(self.timeout) || duration(self.timeout) <= (has(self.interval) ? duration(self.interval) : duration('%s'))", api.DefaultInterval),
		Message: "the timeout is longer than the interval; write a shorter timeout or a longer interval",
	}}
}
