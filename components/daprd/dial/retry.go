package dial

// serviceConfig is daprd's own for connections to other sidecars, with one more try
// for a call that a lost gateway has cut off. The try comes at once and through another
// gateway, if there is one.
//
// Without it, daprd tries again after a second, which would do, but first closes the
// connection for all calls that are under way on it: those that went through a gateway
// that is well are cancelled, and cancelled calls daprd does not try again.
//
// It is for calls from sidecar to sidecar, which daprd tries again on Unavailable
// anyway, and not for what apps proxy over gRPC, where their own rules hold.
const serviceConfig = `{
	"loadBalancingConfig": [{"round_robin": {}}],
	"methodConfig": [{
		"name": [{"service": "dapr.proto.internals.v1.ServiceInvocation"}],
		"retryPolicy": {
			"maxAttempts": 2,
			"initialBackoff": "0.02s", "maxBackoff": "0.02s", "backoffMultiplier": 1,
			"retryableStatusCodes": ["UNAVAILABLE"]
		}
	}]
}`
