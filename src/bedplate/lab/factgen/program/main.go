// Command factgen prints, as one JSON document, what only the Go types of a Kubernetes version know:
//
//   - per struct type: JSON names, protobuf numbers, pointers, omitempty, inlining ("types");
//   - the defaults that Go code fills in ("defaults").
//
// With the argument "samples" it prints objects of every kind before and after defaulting instead, one pair per line, for
// tests of whoever reads the facts.
//
// OpenAPI documents have neither. `bedplate lab facts` builds it in a module that pins the version, and merges the output
// with what the real API server says of itself.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"

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

var schemes = []*runtime.Scheme{legacyscheme.Scheme, apiextensions.Scheme, aggregator.Scheme}

func main() {
	out := bufio.NewWriter(os.Stdout)
	if len(os.Args) > 1 && os.Args[1] == "samples" {
		printSamples(json.NewEncoder(out))
	} else {
		printFacts(json.NewEncoder(out))
	}
	if err := out.Flush(); err != nil {
		panic(err)
	}
}

func printFacts(out *json.Encoder) {
	doc := document{Types: map[string]structFacts{}}
	for _, scheme := range schemes {
		for gvk, goType := range scheme.AllKnownTypes() {
			if gvk.Version == runtime.APIVersionInternal {
				continue
			}
			collect(goType, doc.Types)
			if strings.HasSuffix(gvk.Kind, "List") { // says nothing its items do not say
				continue
			}
			doc.Defaults = append(doc.Defaults, findDefaults(scheme, gvk, goType)...)
		}
	}
	sortDefaults(doc.Defaults)
	if err := out.Encode(doc); err != nil {
		panic(err)
	}
}
