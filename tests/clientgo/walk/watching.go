package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func informers(ctx context.Context, w *world) error {
	client, err := protobufClient(w)
	if err != nil {
		return err
	}
	secrets := client.CoreV1().Secrets(w.namespace)
	for number := range 5 {
		if _, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", number)}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	var added, updated, deleted atomic.Int32
	factory := kinformers.NewSharedInformerFactoryWithOptions(client, 0, kinformers.WithNamespace(w.namespace))
	informer := factory.Core().V1().Secrets()
	_, err = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { added.Add(1) },
		UpdateFunc: func(_, _ any) { updated.Add(1) },
		DeleteFunc: func(any) { deleted.Add(1) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		return fmt.Errorf("the cache never synced")
	}
	if err := until(ctx, "five added", func() (bool, error) { return added.Load() == 5, nil }); err != nil {
		return err
	}
	held, err := informer.Lister().Secrets(w.namespace).Get("s0")
	if err != nil {
		return err
	}
	changed := held.DeepCopy()
	changed.Labels = map[string]string{"x": "y"}
	if _, err := secrets.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := secrets.Delete(ctx, "s1", metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := until(ctx, "update and deletion", func() (bool, error) { return updated.Load() == 1 && deleted.Load() == 1, nil }); err != nil {
		return err
	}
	if w.requests.count("secrets", "sendInitialEvents=true") == 0 {
		return fmt.Errorf("client-go did not ask for a streamed list")
	}
	if lists := w.requests.count("GET", "secrets?limit"); lists != 0 {
		return fmt.Errorf("client-go fell back to %d plain lists", lists)
	}
	fmt.Println("informer synced by a streamed list and followed changes")
	return nil
}

// elector runs for the lease "l" and reports through the callbacks.
func elector(client *kubernetes.Clientset, namespace, identity string, lead func(context.Context), stop func()) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: "l", Namespace: namespace},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration:   6 * time.Second,
		RenewDeadline:   4 * time.Second,
		RetryPeriod:     200 * time.Millisecond,
		ReleaseOnCancel: true,
		Callbacks:       leaderelection.LeaderCallbacks{OnStartedLeading: lead, OnStoppedLeading: stop},
	}
}

func leaderElection(ctx context.Context, w *world) error {
	client, err := protobufClient(w)
	if err != nil {
		return err
	}
	var leading, most atomic.Int32
	started := make(chan string, 2)
	var running sync.WaitGroup
	cancels := map[string]context.CancelFunc{}
	for _, identity := range []string{"one", "two"} {
		own, cancel := context.WithCancel(ctx)
		cancels[identity] = cancel
		running.Add(1)
		go func() {
			defer running.Done()
			lead := func(ctx context.Context) {
				most.Store(max(most.Load(), leading.Add(1)))
				started <- identity
				<-ctx.Done()
				leading.Add(-1)
			}
			leaderelection.RunOrDie(own, elector(client, w.namespace, identity, lead, func() {}))
		}()
	}
	first := <-started
	// Between two renewals: a renewal cut off in flight may still be stored, and its lease then has to run out.
	time.Sleep(100 * time.Millisecond)
	cancels[first]()
	second := <-started
	if first == second {
		return fmt.Errorf("%s led twice", first)
	}
	lease, err := client.CoordinationV1().Leases(w.namespace).Get(ctx, "l", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != second || *lease.Spec.LeaseTransitions < 1 {
		return fmt.Errorf("lease after the hand-over: %v, %v", lease, err)
	}
	cancels[second]()
	running.Wait()
	if most.Load() != 1 {
		return fmt.Errorf("%d leaders at once", most.Load())
	}
	fmt.Println("leadership handed over, never two at once")
	return nil
}
