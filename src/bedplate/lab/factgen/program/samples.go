package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"sort"
	"strings"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type sample struct {
	Before runtime.Object `json:"before"`
	After  runtime.Object `json:"after"`
}

// Texts that defaulting looks at, and a few it does not.
var texts = []string{
	"RollingUpdate", "Recreate", "NodePort", "LoadBalancer", "ExternalName", "ClientIP", "Container", "User", "Group",
	"ExactCount", "Indexed", "nginx", "nginx:latest", "host:5000/a/b", "host/a:1.27", "10.0.0.1", "a", "Host/a",
}

var amounts = []string{"0", "100m", "1000m", "1.5", "2048Mi", "1.5Gi", "3k", "2000", "0.0001", "1e3", "12e6"}

const deepestSample = 9

func printSamples(out *json.Encoder) {
	for _, scheme := range schemes {
		for _, gvk := range stableKinds(scheme) {
			for round, share := range []float64{0.05, 0.3, 0.6} {
				before, err := scheme.New(gvk)
				if err != nil {
					panic(err)
				}
				random := rand.New(rand.NewSource(int64(len(gvk.String())*10 + round)))
				sampler{random, share}.fill(reflect.ValueOf(before).Elem(), 0)
				before.GetObjectKind().SetGroupVersionKind(gvk)
				after := before.DeepCopyObject()
				scheme.Default(after)
				if err := out.Encode(sample{before, after}); err != nil {
					panic(err)
				}
			}
		}
	}
}

// stableKinds are the kinds that have metadata and are no alpha, beta or list.
func stableKinds(scheme *runtime.Scheme) []schema.GroupVersionKind {
	var found []schema.GroupVersionKind
	for gvk, goType := range scheme.AllKnownTypes() {
		_, hasMetadata := goType.FieldByName("ObjectMeta")
		isStable := gvk.Version == "v1" || gvk.Version == "v2"
		if hasMetadata && isStable && !strings.HasSuffix(gvk.Kind, "List") {
			found = append(found, gvk)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].String() < found[j].String() })
	return found
}

type sampler struct {
	random *rand.Rand
	share  float64
}

func (s sampler) isSet() bool { return s.random.Float64() < s.share }

func (s sampler) leaf(kind reflect.Type) (any, bool) {
	switch kind {
	case reflect.TypeFor[metav1.Time]():
		return metav1.NewTime(time.Unix(s.random.Int63n(4e9), 0).UTC()), true
	case reflect.TypeFor[metav1.MicroTime]():
		return metav1.NewMicroTime(time.UnixMicro(s.random.Int63n(4e15)).UTC()), true
	case reflect.TypeFor[resource.Quantity]():
		return resource.MustParse(amounts[s.random.Intn(len(amounts))]), true
	case reflect.TypeFor[intstr.IntOrString]():
		if s.random.Intn(2) == 0 {
			return intstr.FromInt32(s.random.Int31n(100)), true
		}
		return intstr.FromString("50%"), true
	case reflect.TypeFor[runtime.RawExtension]():
		return runtime.RawExtension{Raw: []byte(`{"a":[1]}`)}, true
	case reflect.TypeFor[metav1.FieldsV1]():
		return metav1.FieldsV1{Raw: []byte(`{"f:a":{}}`)}, true
	case reflect.TypeFor[apiextensions.JSONSchemaProps]():
		return apiextensions.JSONSchemaProps{Type: "object"}, true
	}
	return nil, false
}

func (s sampler) fill(value reflect.Value, depth int) {
	if made, ok := s.leaf(value.Type()); ok {
		if s.isSet() {
			value.Set(reflect.ValueOf(made))
		}
		return
	}
	if depth > deepestSample {
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		for i := 0; i < value.NumField(); i++ {
			if value.Type().Field(i).IsExported() {
				s.fill(value.Field(i), depth+1)
			}
		}
	case reflect.Pointer:
		if s.isSet() {
			value.Set(reflect.New(value.Type().Elem()))
			if made, ok := s.leaf(value.Type().Elem()); ok {
				value.Elem().Set(reflect.ValueOf(made))
			} else {
				s.fill(value.Elem(), depth+1)
			}
		}
	case reflect.Slice:
		if s.isSet() && value.Type().Elem().Kind() != reflect.Uint8 {
			value.Set(reflect.MakeSlice(value.Type(), 1, 1))
			s.fill(value.Index(0), depth+1)
		}
	case reflect.Map:
		if s.isSet() {
			value.Set(reflect.MakeMap(value.Type()))
			element := reflect.New(value.Type().Elem()).Elem()
			s.fill(element, depth+1)
			key := fmt.Sprintf("key-%d", s.random.Intn(3))
			value.SetMapIndex(reflect.ValueOf(key).Convert(value.Type().Key()), element)
		}
	default:
		s.fillScalar(value)
	}
}

func (s sampler) fillScalar(value reflect.Value) {
	if !s.isSet() {
		return
	}
	switch value.Kind() {
	case reflect.String:
		value.SetString(texts[s.random.Intn(len(texts))])
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int32, reflect.Int64:
		value.SetInt(s.random.Int63n(1000))
	case reflect.Float64:
		value.SetFloat(1.5)
	}
}
