package resolverservice

import (
	"context"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
)

// operatorOff is listen.operator for no socket.
const operatorOff = "off"

// longestSocketPath is what every system takes; macOS has the least.
const longestSocketPath = 103

// operatorEdge is for the command line on this machine. It needs no certificate, so it also works
// while Sentry is away: the file's mode says who may connect.
func (c *Config) operatorEdge() edge.Edge {
	return edge.Edge{
		Name: "operator", Listen: edge.At("operator", c.operatorAddress()), Optional: c.Listen.Operator == "",
		Claim: edge.Claim{Default: 64, Part: 64},
	}
}

// operatorAddress is where the socket is; empty for nowhere.
func (c *Config) operatorAddress() string {
	switch c.Listen.Operator {
	case operatorOff:
		return ""
	case "":
		path, err := filepath.Abs(c.dataDir().Own("operator") + ".sock")
		if err != nil || len(path) > longestSocketPath {
			return ""
		}
		return "unix://" + path
	default:
		return c.Listen.Operator
	}
}

// operatorPart serves what listen.resolver serves to operators.
func (s *Service) operatorPart() (edge.Part, error) {
	r := s.resolver
	r.local = r.newServer(rulesAt(atOperator), identity.LocalCredentials(), trustedOptions()...)
	return edge.Part{Run: func(ctx context.Context) error { return edge.ServeGRPC(ctx, s.listeners.TCP("operator"), r.local) }}, nil
}

// operators makes a server within the process, for an edge that has let people in itself.
func (r *resolver) operators(who func(context.Context) edge.Person) *grpc.Server {
	rules := rulesAt(atConsole)
	rules.admit = func(ctx context.Context, method string, request any) (context.Context, error) {
		verb, err := verbOf(method, request)
		if err != nil {
			return nil, err
		}
		person := who(ctx)
		if !person.May(verb) {
			r.access.log.Warn("person "+person.Name+verb, "refused a call", "listener", atConsole, "method", method, "caller", person.Name)
			return nil, status.Errorf(codes.PermissionDenied, "%s may not %s: that takes one of the groups that console.oidc.groups.%[2]s of isthmus.yaml names", person.Name, verb)
		}
		return identity.WithPerson(ctx, person.Name), nil
	}
	return r.newServer(rules, insecure.NewCredentials(), trustedOptions()...)
}
