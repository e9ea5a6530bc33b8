// Command protobytes prints objects of every kind a typed client can write, each as the protobuf a client sends and as
// the JSON a server makes of it: one JSON document per line. The objects are filled by a seeded generator.
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
)

type pair struct {
	Kind  string          `json:"kind"`
	JSON  json.RawMessage `json:"json"`
	Proto string          `json:"proto"`
}

// Shares of fields that are set: none, few, half, nearly all.
var shares = []float64{0, 0.2, 0.5, 0.95}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, scheme := range []*runtime.Scheme{kubernetes.Scheme, apiextensions.Scheme} {
		for _, gvk := range kinds(scheme) {
			for round, share := range shares {
				random := rand.New(rand.NewSource(int64(len(gvk.String())*100 + round)))
				line, err := encode(scheme, gvk, random, share)
				if err != nil {
					fmt.Fprintf(os.Stderr, "%s: %v\n", gvk, err)
					os.Exit(1)
				}
				out.Write(append(line, '\n'))
			}
		}
	}
}

func kinds(scheme *runtime.Scheme) []schema.GroupVersionKind {
	var found []schema.GroupVersionKind
	for gvk := range scheme.AllKnownTypes() {
		isStable := !strings.Contains(gvk.Version, "alpha") && !strings.Contains(gvk.Version, "beta")
		// Options other than these travel as query parameters, lists and watch events only to the client.
		isSent := gvk.Kind == "DeleteOptions" || !strings.HasSuffix(gvk.Kind, "Options") &&
			!strings.HasSuffix(gvk.Kind, "List") && gvk.Kind != "WatchEvent"
		if isStable && isSent && gvk.Version != runtime.APIVersionInternal {
			found = append(found, gvk)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].String() < found[j].String() })
	return found
}

func encode(scheme *runtime.Scheme, gvk schema.GroupVersionKind, random *rand.Rand, share float64) ([]byte, error) {
	object, err := scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	fillObject(object, random, share)
	object.GetObjectKind().SetGroupVersionKind(gvk)
	serializer := protobuf.NewSerializer(scheme, scheme)
	var sent bytes.Buffer
	if err := serializer.Encode(object, &sent); err != nil {
		return nil, err
	}
	received, _, err := serializer.Decode(sent.Bytes(), &gvk, nil)
	if err != nil {
		return nil, err
	}
	received.GetObjectKind().SetGroupVersionKind(gvk)
	text, err := json.Marshal(received)
	if err != nil {
		return nil, err
	}
	return json.Marshal(pair{gvk.String(), text, base64.StdEncoding.EncodeToString(sent.Bytes())})
}
