package dial

// balancerName is the balancer of our channels, as gRPC knows it.
const balancerName = "isthmus_plan"

const baseServiceConfig = `{"loadBalancingConfig": [{"` + balancerName + `": {}}]}`

// retryServiceConfig repeats a call that was cut off once, at another endpoint. Apps with a single
// endpoint do without. The pause is for a cluster that fails as a whole: the connections to its
// instances end one after the other, and there is no third attempt.
//
// A call that was cut off may have reached its app, so it may run twice. daprd itself takes that
// risk: it repeats a call that ends with Unavailable up to three times, whatever its method. There
// are two exceptions in daprd, which gRPC cannot see and so does not make: a target with a
// Resiliency policy is repeated by that policy only, and a request of unknown length (chunked)
// never. gRPC does not repeat a call once its answer has begun, or if it would have to send more
// than 256 KiB again.
//
// Calls that apps proxy over gRPC are not repeated: the apps' own rules hold there.
const retryServiceConfig = `{
	"loadBalancingConfig": [{"` + balancerName + `": {}}],
	"methodConfig": [{
		"name": [{"service": "dapr.proto.internals.v1.ServiceInvocation"}],
		"retryPolicy": {
			"maxAttempts": 2,
			"initialBackoff": "0.03s", "maxBackoff": "0.03s", "backoffMultiplier": 1,
			"retryableStatusCodes": ["UNAVAILABLE"]
		}
	}]
}`

func serviceConfig(retry bool) string {
	if retry {
		return retryServiceConfig
	}
	return baseServiceConfig
}
