package dial

// plain is daprd's own service config for connections to other sidecars, with a policy
// that is round_robin for whoever calls.
const plain = `{"loadBalancingConfig": [{"` + policy + `": {}}]}`

// retrying is plain with one more try for a call that a lost gateway has cut off, at
// once and through another gateway; with one gateway only it is not used.
//
// Without it, daprd tries again after a second, which would do, but first closes the
// connection for all calls that are under way on it: those that went through a gateway
// that is well are cancelled, and cancelled calls daprd does not try again.
//
// A call that is cut off may have reached its app, so this can run it twice. daprd by
// itself takes that risk too: it tries a call that ends with Unavailable up to three
// times more, whatever its method. But not always, and this makes no difference there,
// since gRPC knows neither: a target with a Resiliency policy is tried again by that
// policy only, and a request whose length is unknown (chunked) never. gRPC gives up too once
// the answer has begun, or when more than 256 KiB would have to be sent again.
//
// It is not for what apps proxy over gRPC, where their own rules hold.
const retrying = `{
	"loadBalancingConfig": [{"` + policy + `": {}}],
	"methodConfig": [{
		"name": [{"service": "dapr.proto.internals.v1.ServiceInvocation"}],
		"retryPolicy": {
			"maxAttempts": 2,
			"initialBackoff": "0.02s", "maxBackoff": "0.02s", "backoffMultiplier": 1,
			"retryableStatusCodes": ["UNAVAILABLE"]
		}
	}]
}`

// serviceConfig is the one for so many gateways.
func (f *follower) serviceConfig(gateways int) string {
	if f.retry && gateways > 1 {
		return retrying
	}
	return plain
}
