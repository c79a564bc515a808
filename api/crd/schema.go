package crd

// schema is a structural schema, as far as it is used here. Its fields are those of
// JSONSchemaProps of apiextensions.k8s.io/v1:
// https://kubernetes.io/docs/reference/kubernetes-api/extend-resources/custom-resource-definition-v1/
type schema struct {
	Description string             `yaml:"description,omitempty"`
	Type        string             `yaml:"type,omitempty"`
	Format      string             `yaml:"format,omitempty"`
	Nullable    bool               `yaml:"nullable,omitempty"`
	Enum        []string           `yaml:"enum,omitempty,flow"`
	Pattern     string             `yaml:"pattern,omitempty"`
	Minimum     *int               `yaml:"minimum,omitempty"`
	Maximum     *int               `yaml:"maximum,omitempty"`
	MinLength   *int               `yaml:"minLength,omitempty"`
	MaxLength   *int               `yaml:"maxLength,omitempty"`
	MinItems    *int               `yaml:"minItems,omitempty"`
	MaxItems    *int               `yaml:"maxItems,omitempty"`
	MinFields   *int               `yaml:"minProperties,omitempty"`
	MaxFields   *int               `yaml:"maxProperties,omitempty"`
	Not         *schema            `yaml:"not,omitempty"`
	Required    []string           `yaml:"required,omitempty,flow"`
	Properties  map[string]*schema `yaml:"properties,omitempty"`
	Items       *schema            `yaml:"items,omitempty"`
	IntOrString bool               `yaml:"x-kubernetes-int-or-string,omitempty"`
	ListType    string             `yaml:"x-kubernetes-list-type,omitempty"`
	ListMapKeys []string           `yaml:"x-kubernetes-list-map-keys,omitempty,flow"`
	Rules       []rule             `yaml:"x-kubernetes-validations,omitempty"`
}

// rule is one in CEL, and what is said where it does not hold.
type rule struct {
	Rule       string `yaml:"rule"`
	Message    string `yaml:"message,omitempty"`
	Expression string `yaml:"messageExpression,omitempty"` // of the message, with Message for when it fails
	FieldPath  string `yaml:"fieldPath,omitempty"`
}

// definition is a CustomResourceDefinition.
type definition struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       spec     `yaml:"spec"`
}

type metadata struct {
	Name        string            `yaml:"name"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

type spec struct {
	Group    string    `yaml:"group"`
	Names    names     `yaml:"names"`
	Scope    string    `yaml:"scope"`
	Versions []version `yaml:"versions"`
}

type names struct {
	Kind       string   `yaml:"kind"`
	ListKind   string   `yaml:"listKind"`
	Plural     string   `yaml:"plural"`
	Singular   string   `yaml:"singular"`
	ShortNames []string `yaml:"shortNames,flow"`
	Categories []string `yaml:"categories,flow"`
}

type version struct {
	Name         string            `yaml:"name"`
	Served       bool              `yaml:"served"`
	Storage      bool              `yaml:"storage"`
	Subresources map[string]any    `yaml:"subresources"`
	Columns      []column          `yaml:"additionalPrinterColumns"`
	Schema       map[string]schema `yaml:"schema"`
}

// column is what "kubectl get" shows; one with a priority only with "-o wide".
type column struct {
	Name        string `yaml:"name"`
	Type        string `yaml:"type"`
	JSONPath    string `yaml:"jsonPath"`
	Description string `yaml:"description,omitempty"`
	Priority    int    `yaml:"priority,omitempty"`
}

func number(n int) *int { return &n }

// status is what the resolver service says of an object. Its conditions are those of
// metav1.Condition.
func status() *schema {
	text := func(description string, most int) *schema {
		return &schema{Type: "string", Description: description, MaxLength: number(most)}
	}
	condition := &schema{
		Type: "object", Required: []string{"type", "status", "lastTransitionTime", "reason", "message"},
		Properties: map[string]*schema{
			"type":               text("What is told: Accepted.", 316),
			"status":             {Type: "string", Enum: []string{"True", "False", "Unknown"}, Description: "Whether it is so."},
			"observedGeneration": {Type: "integer", Format: "int64", Minimum: number(0), Description: "The metadata.generation that this is about."},
			"lastTransitionTime": {Type: "string", Format: "date-time", Description: "When the status last became another."},
			"reason":             text("Why, in one word.", 1024),
			"message":            text("The field that is wrong, what is wrong with it, and what to do.", 32768),
		},
	}
	return &schema{
		Type: "object", Description: "What the resolver service makes of the object. Written by the service.",
		Properties: map[string]*schema{"conditions": {
			Type: "array", Description: "Accepted says whether the object is in use, or else which field of it is wrong and why.",
			ListType: "map", ListMapKeys: []string{"type"}, MaxItems: number(8), Items: condition,
		}},
	}
}
