package main

import (
	"encoding/json"
	"reflect"
	"sort"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// defaultFact says that Go code put Value into field Field of a struct of type Type, found at Path of an object of kind
// Kind. Before, the object had nothing set but this: down to a depth of Filled, every list had one empty element and every
// pointer to a struct an empty struct.
type defaultFact struct {
	Kind   string          `json:"kind"`
	Path   string          `json:"path"`
	Type   string          `json:"type"`
	Field  string          `json:"field"`
	Value  json.RawMessage `json:"value"`
	Filled int             `json:"filled"`
}

func sortDefaults(facts []defaultFact) {
	sort.Slice(facts, func(i, j int) bool {
		a, b := facts[i], facts[j]
		if a.Kind != b.Kind {
			return a.Kind < b.Kind
		}
		if a.Path != b.Path {
			return a.Path < b.Path
		}
		return a.Filled < b.Filled
	})
}

// Deeper than any built-in kind.
const deepest = 16

func findDefaults(scheme *runtime.Scheme, gvk schema.GroupVersionKind, goType reflect.Type) []defaultFact {
	var found []defaultFact
	for filled := 0; filled <= deepest; filled++ {
		make := func() reflect.Value {
			value := reflect.New(goType)
			fill(value.Elem(), filled, nil)
			return value
		}
		before, after := make(), make()
		object, ok := after.Interface().(runtime.Object)
		if !ok || !applyDefaults(scheme, object) {
			continue
		}
		compare(before.Elem(), after.Elem(), "", func(path, owner, field string, value reflect.Value) {
			encoded, err := json.Marshal(value.Interface())
			if err != nil {
				panic(err)
			}
			kind := gvk.GroupVersion().String() + "." + gvk.Kind
			found = append(found, defaultFact{kind, path, owner, field, encoded, filled})
		})
	}
	return found
}

// applyDefaults reports whether the defaulting functions coped with the object; a few expect lists with more in them.
func applyDefaults(scheme *runtime.Scheme, object runtime.Object) (ok bool) {
	defer func() { ok = recover() == nil }()
	scheme.Default(object)
	return true
}

// Structs that are one value to a user: filling them would look as if the user had set a zero.
var leaves = map[reflect.Type]bool{
	reflect.TypeFor[resource.Quantity]():  true,
	reflect.TypeFor[metav1.Time]():        true,
	reflect.TypeFor[metav1.MicroTime]():   true,
	reflect.TypeFor[metav1.Duration]():    true,
	reflect.TypeFor[intstr.IntOrString](): true,
}

// fill gives every list one empty element and every pointer to a struct an empty struct, so many levels down. A type
// that contains itself is filled once.
func fill(value reflect.Value, levels int, above []reflect.Type) {
	switch value.Kind() {
	case reflect.Pointer:
		if value.Type().Elem().Kind() == reflect.Struct && !leaves[value.Type().Elem()] && levels > 0 {
			fresh := reflect.New(value.Type().Elem())
			fill(fresh.Elem(), levels-1, above)
			value.Set(fresh)
		}
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Struct && levels > 0 {
			fresh := reflect.MakeSlice(value.Type(), 1, 1)
			fill(fresh.Index(0), levels-1, above)
			value.Set(fresh)
		}
	case reflect.Struct:
		for _, seen := range above {
			if seen == value.Type() {
				return
			}
		}
		above = append(above[:len(above):len(above)], value.Type())
		for i := 0; i < value.NumField(); i++ {
			if value.Type().Field(i).IsExported() {
				fill(value.Field(i), levels, above)
			}
		}
	}
}

type report func(path, owner, field string, value reflect.Value)

// compare walks two values of one type and reports each field that only the second one has.
func compare(before, after reflect.Value, path string, tell report) {
	switch before.Kind() {
	case reflect.Pointer:
		if !before.IsNil() && !after.IsNil() {
			compare(before.Elem(), after.Elem(), path, tell)
		}
	case reflect.Slice:
		if before.Len() > 0 && after.Len() > 0 {
			compare(before.Index(0), after.Index(0), path+"[]", tell)
		}
	case reflect.Struct:
		for i := 0; i < before.NumField(); i++ {
			field := before.Type().Field(i)
			if !field.IsExported() {
				continue
			}
			facts, ok := describe(field)
			if !ok {
				continue
			}
			inner := path
			if facts.Name != "" {
				inner = path + "." + facts.Name
			}
			isStruct := field.Type.Kind() == reflect.Struct && !leaves[field.Type]
			if !isStruct && before.Field(i).IsZero() && !after.Field(i).IsZero() {
				tell(inner, typeName(before.Type()), facts.Name, after.Field(i))
			} else {
				compare(before.Field(i), after.Field(i), inner, tell)
			}
		}
	}
}
