package main

import (
	"reflect"
	"strconv"
	"strings"
)

// fieldFacts describes one field of a Go struct. Type is an expression: "*" a pointer, "[]" a list, "{}" a map from
// strings, "M[]" a named list that protobuf wraps in a message of its own, then a scalar or the OpenAPI name of a struct.
type fieldFacts struct {
	Name      string `json:"name"`
	Type      string `json:"type"`
	Number    int    `json:"number,omitempty"`
	Wire      string `json:"wire,omitempty"`
	Inline    bool   `json:"inline,omitempty"`
	OmitEmpty bool   `json:"omitempty,omitempty"`
	OmitZero  bool   `json:"omitzero,omitempty"`
}

type structFacts struct {
	Fields []fieldFacts `json:"fields"`
}

type marshaler interface{ Marshal() ([]byte, error) }

var marshalerType = reflect.TypeOf((*marshaler)(nil)).Elem()

// collect adds the facts of a type and of all types it reaches.
func collect(t reflect.Type, into map[string]structFacts) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
		collect(t.Elem(), into)
		return
	case reflect.Struct:
	default:
		return
	}
	name := typeName(t)
	if _, known := into[name]; known || name == "" {
		return
	}
	into[name] = structFacts{}
	facts := structFacts{Fields: []fieldFacts{}}
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		if !field.IsExported() {
			continue
		}
		if described, ok := describe(field); ok {
			facts.Fields = append(facts.Fields, described)
			collect(field.Type, into)
		}
	}
	into[name] = facts
}

func describe(field reflect.StructField) (fieldFacts, bool) {
	jsonTag := strings.Split(field.Tag.Get("json"), ",")
	facts := fieldFacts{Name: jsonTag[0], Type: expression(field.Type)}
	for _, option := range jsonTag[1:] {
		switch option {
		case "inline":
			facts.Inline = true
		case "omitempty":
			facts.OmitEmpty = true
		case "omitzero":
			facts.OmitZero = true
		}
	}
	if field.Anonymous && facts.Name == "" {
		facts.Inline = true
	}
	if tag := field.Tag.Get("protobuf"); tag != "" && tag != "-" {
		parts := strings.Split(tag, ",")
		if number, err := strconv.Atoi(parts[1]); err == nil {
			facts.Number, facts.Wire = number, parts[0]
		}
	}
	if facts.Name == "-" && facts.Number == 0 {
		return facts, false
	}
	return facts, true
}

func expression(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + expression(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		if t.Name() != "" && reflect.PointerTo(t).Implements(marshalerType) {
			return "M[]" + expression(t.Elem())
		}
		return "[]" + expression(t.Elem())
	case reflect.Map:
		return "{}" + expression(t.Elem())
	case reflect.Struct:
		return typeName(t)
	default:
		return t.Kind().String()
	}
}

// typeName is the name OpenAPI documents use: k8s.io/api/core/v1.Pod is io.k8s.api.core.v1.Pod.
func typeName(t reflect.Type) string {
	if t.Name() == "" {
		return ""
	}
	path := strings.Split(t.PkgPath(), "/")
	host := strings.Split(path[0], ".")
	for i, j := 0, len(host)-1; i < j; i, j = i+1, j-1 {
		host[i], host[j] = host[j], host[i]
	}
	return strings.Join(append(append(host, path[1:]...), t.Name()), ".")
}
