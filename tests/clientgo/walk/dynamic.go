package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func definition(group string) *unstructured.Unstructured {
	spec := map[string]any{
		"type":       "object",
		"properties": map[string]any{"size": map[string]any{"type": "integer", "default": int64(1)}},
	}
	version := map[string]any{
		"name": "v1", "served": true, "storage": true,
		"subresources": map[string]any{"status": map[string]any{}},
		"schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type":       "object",
			"properties": map[string]any{"spec": spec, "status": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}},
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": "things." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names":    map[string]any{"plural": "things", "singular": "thing", "kind": "Thing"},
			"versions": []any{version},
		},
	}}
}

func thing(group, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Thing", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

func dynamicClient(ctx context.Context, w *world) error {
	client, err := dynamic.NewForConfig(w.config)
	if err != nil {
		return err
	}
	group := w.namespace + ".example.com"
	if _, err := client.Resource(definitions).Create(ctx, definition(group), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("definition: %w", err)
	}
	resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}
	things := client.Resource(resource).Namespace(w.namespace)
	err = until(ctx, "custom kind served", func() (bool, error) {
		_, err := things.List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
	if err != nil {
		return err
	}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, w.namespace, nil)
	informer := factory.ForResource(resource).Informer()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("the dynamic cache never synced")
	}
	stream, err := things.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer stream.Stop()
	made, err := things.Create(ctx, thing(group, "a", map[string]any{}), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if size, _, _ := unstructured.NestedInt64(made.Object, "spec", "size"); size != 1 {
		return fmt.Errorf("no default: %v", made.Object)
	}
	if event := <-stream.ResultChan(); event.Type != watch.Added {
		return fmt.Errorf("first event: %v", event)
	}
	if _, err := things.Apply(ctx, "b", thing(group, "b", map[string]any{"size": int64(2)}), metav1.ApplyOptions{FieldManager: "walk"}); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	made.Object["status"] = map[string]any{"ready": true}
	if _, err := things.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("status: %w", err)
	}
	if err := until(ctx, "both in the cache", func() (bool, error) { return len(informer.GetStore().List()) == 2, nil }); err != nil {
		return err
	}
	if err := client.Resource(definitions).Delete(ctx, "things."+group, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deletion of the definition: %w", err)
	}
	fmt.Println("custom kind: defaults, watch, apply, status, informer")
	return until(ctx, "definition gone", func() (bool, error) {
		_, err := client.Resource(definitions).Get(ctx, "things."+group, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}
