// Command protoc-gen-crd is the plugin of buf and protoc that writes the
// CustomResourceDefinitions; "make generate" runs it.
package main

import (
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/types/pluginpb"

	"github.com/isthmus-mesh/isthmus/api/crd"
)

// source is the file that defines the objects.
const source = "isthmus/v1alpha1/objects.proto"

func main() {
	protogen.Options{}.Run(func(p *protogen.Plugin) error {
		p.SupportedFeatures = uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL)
		file := p.FilesByPath[source]
		if file == nil || !file.Generate {
			return nil
		}
		text, err := crd.Generate(file)
		if err != nil {
			return err
		}
		_, err = p.NewGeneratedFile("crds.yaml", "").Write(text)
		return err
	})
}
