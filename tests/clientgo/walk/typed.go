package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// protobufClient is a clientset that writes protobuf, as kubectl, helm and every in-cluster component do.
func protobufClient(w *world) (*kubernetes.Clientset, error) {
	config := rest.CopyConfig(w.config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return kubernetes.NewForConfig(config)
}

func typedClient(ctx context.Context, w *world) error {
	client, err := protobufClient(w)
	if err != nil {
		return err
	}
	for _, part := range []func(context.Context, *world, *kubernetes.Clientset) error{conflicts, richObjects, collections, preconditions} {
		if err := part(ctx, w, client); err != nil {
			return err
		}
	}
	if w.requests.count("POST", "application/vnd.kubernetes.protobuf") == 0 {
		return fmt.Errorf("no protobuf body was sent")
	}
	return nil
}

func conflicts(ctx context.Context, w *world, client *kubernetes.Clientset) error {
	maps := client.CoreV1().ConfigMaps(w.namespace)
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "1"}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("second create: %v", err)
	}
	stale := made.DeepCopy()
	made.Data["k"] = "2"
	if _, err := maps.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	stale.Data["k"] = "3"
	if _, err := maps.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		return fmt.Errorf("stale update: %v", err)
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		fresh, err := maps.Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		fresh.Data["k"] = "4"
		_, err = maps.Update(ctx, fresh, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("retried update: %w", err)
	}
	patched, err := maps.Patch(ctx, "a", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{})
	if err != nil || patched.Labels["x"] != "y" || patched.Data["k"] != "4" {
		return fmt.Errorf("patch: %v %v", patched, err)
	}
	if _, err := maps.Get(ctx, "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("get of nothing: %v", err)
	}
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "Bad_Name"}}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		return fmt.Errorf("invalid create: %v", err)
	}
	fmt.Println("conflicts, patches and errors as promised")
	return nil
}

func richObjects(ctx context.Context, w *world, client *kubernetes.Clientset) error {
	replicas := int32(0)
	labels := map[string]string{"app": "web"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name:  "main",
					Image: "example/web:1",
					Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
					},
					ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("http")}}},
				}}},
			},
		},
	}
	made, err := client.AppsV1().Deployments(w.namespace).Create(ctx, deployment, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("deployment: %w", err)
	}
	container := made.Spec.Template.Spec.Containers[0]
	if container.Resources.Requests.Cpu().String() != "100m" || container.ReadinessProbe.HTTPGet.Port.StrVal != "http" {
		return fmt.Errorf("deployment came back different: %v", container)
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		scale, err := client.AppsV1().Deployments(w.namespace).GetScale(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		scale.Spec.Replicas = 2
		_, err = client.AppsV1().Deployments(w.namespace).UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("scale: %w", err)
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}
	served, err := client.CoreV1().Services(w.namespace).Create(ctx, service, metav1.CreateOptions{})
	if err != nil || served.Spec.ClusterIP == "" || served.Spec.Ports[0].TargetPort.IntVal != 8080 {
		return fmt.Errorf("service: %v %v", served, err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"k": {0, 1, 255}}}
	kept, err := client.CoreV1().Secrets(w.namespace).Create(ctx, secret, metav1.CreateOptions{})
	if err != nil || string(kept.Data["k"]) != "\x00\x01\xff" {
		return fmt.Errorf("secret: %v %v", kept, err)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}}
	if _, err := client.RbacV1().Roles(w.namespace).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("role: %w", err)
	}
	fmt.Println("deployment, scale, service, secret and role round trips")
	return nil
}

func collections(ctx context.Context, w *world, client *kubernetes.Clientset) error {
	templates := client.CoreV1().PodTemplates(w.namespace)
	for number := range 7 {
		template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", number), Labels: map[string]string{"odd": fmt.Sprint(number % 2)}}}
		template.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "example/main:1"}}
		if _, err := templates.Create(ctx, template, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("template: %w", err)
		}
	}
	seen, options := 0, metav1.ListOptions{Limit: 3}
	for {
		page, err := templates.List(ctx, options)
		if err != nil {
			return fmt.Errorf("page: %w", err)
		}
		seen += len(page.Items)
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	if seen != 7 {
		return fmt.Errorf("pages held %d of 7", seen)
	}
	if err := templates.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "odd=1"}); err != nil {
		return fmt.Errorf("delete collection: %w", err)
	}
	rest, err := templates.List(ctx, metav1.ListOptions{})
	if err != nil || len(rest.Items) != 4 {
		return fmt.Errorf("after deleting the odd ones: %d, %v", len(rest.Items), err)
	}
	fmt.Println("pages and deletion of a collection")
	return nil
}

func preconditions(ctx context.Context, w *world, client *kubernetes.Clientset) error {
	maps := client.CoreV1().ConfigMaps(w.namespace)
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "gen-"}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("generated name: %w", err)
	}
	wrong := types.UID("11111111-2222-3333-4444-555555555555")
	err = maps.Delete(ctx, made.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}})
	if !apierrors.IsConflict(err) {
		return fmt.Errorf("delete of another uid: %v", err)
	}
	policy := metav1.DeletePropagationForeground
	if err := maps.Delete(ctx, made.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}, PropagationPolicy: &policy}); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	fmt.Println("preconditions of deletion")
	return until(ctx, "foreground deletion", func() (bool, error) {
		_, err := maps.Get(ctx, made.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}
