package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// configMap is about 1 KB as JSON, with what the server adds to it.
func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{"app.kubernetes.io/name": "bench", "app.kubernetes.io/part-of": "bedplate"},
		},
		Data: map[string]string{"settings.yaml": strings.Repeat("some: text\n", 45), "turn": ""},
	}
}

func (l *load) creates() error {
	maps := l.client.CoreV1().ConfigMaps(namespace)
	var size int
	err := l.each("creates", l.sizes.creates, func(_, number int) error {
		made, err := maps.Create(l.ctx, configMap(fmt.Sprintf("cm-%06d", number)), metav1.CreateOptions{})
		if err == nil && number == 0 {
			text, _ := json.Marshal(made)
			size = len(text)
		}
		return err
	})
	l.noteSize("creates", size)
	return err
}

func (l *load) noteSize(name string, size int) {
	found := l.found[name]
	found.Bytes = size
	l.found[name] = found
}

// updates lets every worker change an object of its own again and again, so that no update meets another.
func (l *load) updates() error {
	maps := l.client.CoreV1().ConfigMaps(namespace)
	own := make([]*corev1.ConfigMap, l.sizes.workers)
	for worker := range own {
		made, err := maps.Create(l.ctx, configMap(fmt.Sprintf("own-%03d", worker)), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		own[worker] = made
	}
	return l.each("updates", l.sizes.updates, func(worker, number int) error {
		own[worker].Data["turn"] = fmt.Sprint(number)
		changed, err := maps.Update(l.ctx, own[worker], metav1.UpdateOptions{})
		if err == nil {
			own[worker] = changed
		}
		return err
	})
}

// gets reads the objects that creates left, in an order that jumps about.
func (l *load) gets() error {
	maps := l.client.CoreV1().ConfigMaps(namespace)
	return l.each("gets", l.sizes.gets, func(_, number int) error {
		name := fmt.Sprintf("cm-%06d", number*7919%l.sizes.creates)
		_, err := maps.Get(l.ctx, name, metav1.GetOptions{})
		return err
	})
}

// pod is about 2 KB as JSON, with the defaults and the volume that the server adds to it.
func pod(name string) *corev1.Pod {
	no := false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{"app": "bench", "pod-template-hash": "5d8c7c9f6b", "tier": "backend"},
			Annotations: map[string]string{"checksum/config": strings.Repeat("0123456789abcdef", 4)},
		},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &no,
			NodeName:                     "node-17",
			Containers: []corev1.Container{{
				Name:  "server",
				Image: "registry.example.com/team/server:1.27.3",
				Args:  []string{"--listen=:8080", "--log-level=info", "--config=/etc/server/config.yaml"},
				Env:   []corev1.EnvVar{{Name: "MODE", Value: "production"}, {Name: "REGION", Value: "north"}},
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
			}},
		},
	}
}

func (l *load) fillPods() error {
	pods := l.client.CoreV1().Pods(podSpace)
	return l.each("", l.sizes.listed, func(_, number int) error {
		_, err := pods.Create(l.ctx, pod(fmt.Sprintf("pod-%04d", number)), metav1.CreateOptions{})
		if known(err) {
			return err
		}
		return nil
	})
}

// lists asks for all pods of a namespace; "lists, undecoded" are the same answers taken as bytes.
func (l *load) lists() error {
	if err := l.fillPods(); err != nil {
		return err
	}
	pods := l.client.CoreV1().Pods(podSpace)
	var size atomic.Int64
	err := l.each("lists", l.sizes.lists, func(_, number int) error {
		found, err := pods.List(l.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(found.Items) != l.sizes.listed {
			return fmt.Errorf("%d pods instead of %d", len(found.Items), l.sizes.listed)
		}
		if number == 0 {
			text, _ := json.Marshal(&found.Items[0])
			size.Store(int64(len(text)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.noteSize("lists", int(size.Load()))
	rest := l.client.CoreV1().RESTClient()
	return l.each("lists, undecoded", l.sizes.lists, func(_, _ int) error {
		_, err := rest.Get().Namespace(podSpace).Resource("pods").DoRaw(l.ctx)
		return err
	})
}

// events lets all watchers see all writes; what counts is how many events arrive per second, decoded, until the last
// watcher has seen the last write.
func (l *load) events() error {
	maps := l.client.CoreV1().ConfigMaps(fanSpace)
	own := make([]*corev1.ConfigMap, l.sizes.workers)
	for worker := range own {
		made, err := maps.Create(l.ctx, configMap(fmt.Sprintf("fan-%03d", worker)), metav1.CreateOptions{})
		if known(err) {
			return err
		}
		own[worker] = made
	}
	var readers sync.WaitGroup
	failures := make(chan error, l.sizes.watchers)
	for range l.sizes.watchers {
		stream, err := maps.Watch(l.ctx, metav1.ListOptions{ResourceVersion: own[l.sizes.workers-1].ResourceVersion})
		if err != nil {
			return err
		}
		defer stream.Stop()
		readers.Add(1)
		go func() {
			defer readers.Done()
			if err := receive(stream, l.sizes.writes); err != nil {
				failures <- err
			}
		}()
	}
	begin, before := time.Now(), processorTime()
	err := l.each("", l.sizes.writes, func(worker, number int) error {
		own[worker].Data["turn"] = fmt.Sprint(number)
		changed, err := maps.Update(l.ctx, own[worker], metav1.UpdateOptions{})
		if err == nil {
			own[worker] = changed
		}
		return err
	})
	if err != nil {
		return err
	}
	readers.Wait()
	elapsed := time.Since(begin)
	select {
	case err := <-failures:
		return err
	default:
	}
	l.found["events"] = figure{
		PerSecond: float64(l.sizes.watchers*l.sizes.writes) / elapsed.Seconds(),
		Own:       (processorTime() - before).Seconds() * 1000 / float64(l.sizes.writes),
	}
	return nil
}

func receive(stream watch.Interface, count int) error {
	for seen := 0; seen < count; {
		event, ok := <-stream.ResultChan()
		if !ok {
			return fmt.Errorf("a watch ended after %d of %d events", seen, count)
		}
		switch event.Type {
		case watch.Modified:
			seen++
		case watch.Error:
			return fmt.Errorf("a watch failed: %v", event.Object)
		}
	}
	return nil
}
