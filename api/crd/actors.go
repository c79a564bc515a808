package crd

import (
	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// actorRules are those of ActorType, and of the actor types of a selection.
func actorRules() map[string]func(*schema) {
	return map[string]func(*schema){
		"ActorType": func(s *schema) {
			s.Required = []string{"spec"}
			s.Rules = []rule{nameRule("the object's name", catalog.CheckInstance)}
		},
		"ActorTypeSpec":           func(s *schema) { s.Required = []string{"type", "owner"}; keepNull(s) },
		"ActorTypeSpec.type":      actorType,
		"ActorTypeSpec.owner":     owner,
		"ActorTypeSpec.allow":     func(s *schema) { list(s, api.MaxAllow) },
		"AppEndpointsSpec.actors": func(s *schema) { list(s, catalog.MaxActors); s.ListType, s.ListMapKeys = "map", []string{"type"} },
		"ActorEndpoint":           func(s *schema) { s.Required = []string{"type"}; keepNull(s) },
		"ActorEndpoint.type":      actorType,
		"ActorEndpoint.routes": func(s *schema) {
			list(s, catalog.MaxRoutes)
			s.ListType, s.ListMapKeys = "map", []string{"cluster"}
		},
		"ActorRoute":         func(s *schema) { s.Required = []string{"cluster"} },
		"ActorRoute.cluster": owner,
	}
}

// actorType is a name that a path of Dapr's actor API can carry, and none of its workflows.
func actorType(s *schema) {
	text(s, "^[-_.a-zA-Z0-9]*[-_a-zA-Z0-9][-_.a-zA-Z0-9]*$", catalog.MaxActorType)
	s.Rules = []rule{{
		Rule:    "!self.startsWith('dapr.internal.')",
		Message: "is one of Dapr's workflows, which stay in their cluster; write another type",
	}}
}

// owner is a cluster that can own an actor type.
func owner(s *schema) {
	name(s, catalog.CheckCluster)
	s.Not = &schema{Enum: reserved()}
}
