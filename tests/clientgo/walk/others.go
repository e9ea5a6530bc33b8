package main

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
)

func applyConfigurations(ctx context.Context, w *world) error {
	client, err := protobufClient(w)
	if err != nil {
		return err
	}
	maps := client.CoreV1().ConfigMaps(w.namespace)
	first := corev1ac.ConfigMap("c", w.namespace).WithData(map[string]string{"k": "1", "gone": "1"}).WithLabels(map[string]string{"x": "y"})
	if _, err := maps.Apply(ctx, first, metav1.ApplyOptions{FieldManager: "first"}); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	second := corev1ac.ConfigMap("c", w.namespace).WithData(map[string]string{"k": "2"})
	if _, err := maps.Apply(ctx, second, metav1.ApplyOptions{FieldManager: "second"}); !apierrors.IsConflict(err) {
		return fmt.Errorf("no conflict: %v", err)
	}
	if _, err := maps.Apply(ctx, second, metav1.ApplyOptions{FieldManager: "second", Force: true}); err != nil {
		return fmt.Errorf("forced apply: %w", err)
	}
	held, err := maps.Get(ctx, "c", metav1.GetOptions{})
	if err != nil {
		return err
	}
	mine, err := corev1ac.ExtractConfigMap(held, "first")
	if err != nil || len(mine.Data) != 1 || mine.Data["gone"] != "1" || mine.Labels["x"] != "y" {
		return fmt.Errorf("extracted: %v, %v", mine, err)
	}
	delete(mine.Data, "gone")
	done, err := maps.Apply(ctx, mine, metav1.ApplyOptions{FieldManager: "first"})
	if err != nil || len(done.Data) != 1 || done.Data["k"] != "2" {
		return fmt.Errorf("after giving up a field: %v, %v", done, err)
	}
	fmt.Println("apply configurations: conflict, force, extract, removal")
	return nil
}

func eventRecorders(ctx context.Context, w *world) error {
	client, err := protobufClient(w)
	if err != nil {
		return err
	}
	about, err := client.CoreV1().ConfigMaps(w.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "about"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(w.namespace)})
	defer broadcaster.Shutdown()
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "walk"})
	for range 3 {
		recorder.Event(about, corev1.EventTypeNormal, "Walked", "one more step")
	}
	err = until(ctx, "one event counted to three", func() (bool, error) {
		list, err := client.CoreV1().Events(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=about,reason=Walked"})
		return err == nil && len(list.Items) == 1 && list.Items[0].Count == 3, err
	})
	if err != nil {
		return err
	}
	newer := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := newer.StartRecordingToSinkWithContext(ctx); err != nil {
		return err
	}
	defer newer.Shutdown()
	newer.NewRecorder(scheme.Scheme, "example.com/walk").Eventf(about, nil, corev1.EventTypeWarning, "Stumbled", "Walking", "over %s", "a stone")
	fmt.Println("both event recorders")
	return until(ctx, "event of the newer group", func() (bool, error) {
		list, err := client.EventsV1().Events(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Stumbled"})
		return err == nil && len(list.Items) == 1 && list.Items[0].Note == "over a stone", err
	})
}

func discoveryAndMapper(_ context.Context, w *world) error {
	client, err := discovery.NewDiscoveryClientForConfig(w.config)
	if err != nil {
		return err
	}
	groups, resources, err := client.ServerGroupsAndResources()
	if err != nil || len(groups) < 15 || len(resources) < 15 {
		return fmt.Errorf("%d groups, %d resource lists: %v", len(groups), len(resources), err)
	}
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)), client, nil)
	kind, err := mapper.KindFor(schema.GroupVersionResource{Resource: "deploy"})
	if err != nil || kind.Kind != "Deployment" || kind.Group != "apps" {
		return fmt.Errorf("deploy is %v: %v", kind, err)
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"})
	if err != nil || mapping.Resource.Resource != "clusterroles" || mapping.Scope.Name() != "root" {
		return fmt.Errorf("ClusterRole maps to %v: %v", mapping, err)
	}
	version, err := client.ServerVersion()
	if err != nil || version.Major != "1" {
		return fmt.Errorf("version %v: %v", version, err)
	}
	if _, err := client.OpenAPIV3().Paths(); err != nil {
		return fmt.Errorf("OpenAPI index: %w", err)
	}
	fmt.Println("discovery and the mapper")
	return nil
}

func smallerClients(ctx context.Context, w *world) error {
	client, err := protobufClient(w)
	if err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot", Labels: map[string]string{"made": "here"}}}
	if _, err := client.CoreV1().ServiceAccounts(w.namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	token, err := client.CoreV1().ServiceAccounts(w.namespace).CreateToken(ctx, "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil || token.Status.Token == "" {
		return fmt.Errorf("token: %v", err)
	}
	review, err := client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token}}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated || review.Status.User.Username != "system:serviceaccount:"+w.namespace+":robot" {
		return fmt.Errorf("token review: %v, %v", review, err)
	}
	question := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Resource: "*", Group: "*"},
	}}
	answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, question, metav1.CreateOptions{})
	if err != nil || !answer.Status.Allowed {
		return fmt.Errorf("access review: %v, %v", answer, err)
	}
	partial, err := metadata.NewForConfig(w.config)
	if err != nil {
		return err
	}
	accounts := partial.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")).Namespace(w.namespace)
	listed, err := accounts.List(ctx, metav1.ListOptions{LabelSelector: "made=here"})
	if err != nil || len(listed.Items) != 1 || listed.Items[0].Name != "robot" {
		return fmt.Errorf("metadata list: %v, %v", listed, err)
	}
	fmt.Println("tokens, reviews and the metadata client")
	return nil
}
