package main

import (
	"fmt"
	"math/rand"
	"reflect"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const deepest = 8

type filler struct {
	random *rand.Rand
	share  float64
}

func fillObject(object runtime.Object, random *rand.Rand, share float64) {
	filler{random, share}.fill(reflect.ValueOf(object).Elem(), 0)
}

func (f filler) isSet() bool { return f.random.Float64() < f.share }

// leaf gives values for types whose wire form is their own.
func (f filler) leaf(kind reflect.Type) (any, bool) {
	moment := time.Unix(f.random.Int63n(4e9), f.random.Int63n(1e9)).UTC()
	switch kind {
	case reflect.TypeFor[metav1.Time]():
		return metav1.NewTime(moment), true
	case reflect.TypeFor[metav1.MicroTime]():
		return metav1.NewMicroTime(moment), true
	case reflect.TypeFor[resource.Quantity]():
		return resource.MustParse([]string{"0", "100m", "1", "1536Mi", "-3", "2.5Gi", "1e3"}[f.random.Intn(7)]), true
	case reflect.TypeFor[intstr.IntOrString]():
		if f.random.Intn(2) == 0 {
			return intstr.FromInt32(f.random.Int31() - 1<<30), true
		}
		return intstr.FromString("25%"), true
	case reflect.TypeFor[runtime.RawExtension]():
		return runtime.RawExtension{Raw: []byte(`{"kind":"X","n":[1,2.5,null]}`)}, true
	case reflect.TypeFor[metav1.FieldsV1]():
		return metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:name":{}}}`)}, true
	case reflect.TypeFor[apiextensions.JSON]():
		return apiextensions.JSON{Raw: []byte(`{"a":true}`)}, true
	case reflect.TypeFor[apiextensions.JSONSchemaPropsOrBool]():
		return apiextensions.JSONSchemaPropsOrBool{Allows: f.random.Intn(2) == 0}, true
	case reflect.TypeFor[apiextensions.JSONSchemaPropsOrArray]():
		return apiextensions.JSONSchemaPropsOrArray{Schema: &apiextensions.JSONSchemaProps{Type: "string"}}, true
	case reflect.TypeFor[apiextensions.JSONSchemaPropsOrStringArray]():
		return apiextensions.JSONSchemaPropsOrStringArray{Property: []string{"a", "b"}}, true
	}
	return nil, false
}

func (f filler) fill(value reflect.Value, depth int) {
	if made, ok := f.leaf(value.Type()); ok {
		if f.isSet() {
			value.Set(reflect.ValueOf(made))
		}
		return
	}
	if depth > deepest {
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		for i := 0; i < value.NumField(); i++ {
			if value.Type().Field(i).IsExported() && value.Type().Field(i).Type != reflect.TypeFor[metav1.TypeMeta]() {
				f.fill(value.Field(i), depth+1)
			}
		}
	case reflect.Pointer:
		if f.isSet() {
			value.Set(reflect.New(value.Type().Elem()))
			f.fill(value.Elem(), depth+1) // may stay zero behind the pointer, which JSON must keep
		}
	case reflect.Slice:
		f.fillSlice(value, depth)
	case reflect.Map:
		if f.isSet() {
			value.Set(reflect.MakeMap(value.Type()))
			for i := 0; i < 2; i++ {
				element := reflect.New(value.Type().Elem()).Elem()
				f.fill(element, depth+1)
				value.SetMapIndex(reflect.ValueOf(fmt.Sprintf("key-%d", i)).Convert(value.Type().Key()), element)
			}
		}
	default:
		f.fillScalar(value)
	}
}

func (f filler) fillSlice(value reflect.Value, depth int) {
	if !f.isSet() {
		return
	}
	if value.Type().Elem().Kind() == reflect.Uint8 {
		value.SetBytes([]byte{0, 1, 250, byte(f.random.Intn(256))})
		return
	}
	value.Set(reflect.MakeSlice(value.Type(), 2, 2))
	for i := 0; i < 2; i++ {
		f.fill(value.Index(i), depth+1)
	}
}

func (f filler) fillScalar(value reflect.Value) {
	if !f.isSet() {
		return
	}
	switch value.Kind() {
	case reflect.String:
		value.SetString([]string{"a", "nginx:1.27", "päß→", "line\nline"}[f.random.Intn(4)])
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int32:
		value.SetInt(int64(f.random.Int31()) - 1<<30)
	case reflect.Int64:
		value.SetInt(f.random.Int63() - 1<<62)
	case reflect.Float64:
		value.SetFloat([]float64{1, 2.5, -1e30}[f.random.Intn(3)])
	}
}
