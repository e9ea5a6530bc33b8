// Command factgen prints, as one JSON document, what only the Go types of a Kubernetes version know:
//
//   - per struct type: JSON names, protobuf numbers, pointers, omitempty, inlining ("types");
//   - the defaults that Go code fills in ("defaults").
//
// OpenAPI documents have neither. `bedplate lab facts` builds it in a module that pins the version, and merges the output
// with what the real API server says of itself.
package main

import (
	"bufio"
	"encoding/json"
	"os"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/controlplane" // registers every built-in group with the legacy scheme
)

type document struct {
	Types    map[string]structFacts `json:"types"`
	Defaults []defaultFact          `json:"defaults"`
}

func main() {
	doc := document{Types: map[string]structFacts{}}
	for _, scheme := range []*runtime.Scheme{legacyscheme.Scheme, apiextensions.Scheme, aggregator.Scheme} {
		for gvk, goType := range scheme.AllKnownTypes() {
			if gvk.Version == runtime.APIVersionInternal {
				continue
			}
			collect(goType, doc.Types)
			doc.Defaults = append(doc.Defaults, findDefaults(scheme, gvk, goType)...)
		}
	}
	sortDefaults(doc.Defaults)
	out := bufio.NewWriter(os.Stdout)
	if err := json.NewEncoder(out).Encode(doc); err != nil {
		panic(err)
	}
	if err := out.Flush(); err != nil {
		panic(err)
	}
}
