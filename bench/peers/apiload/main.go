// Command apiload drives an API server with typed clients and reports, as one line of JSON, how many operations per
// second it answered.
//
// All operations use the clients as client-go makes them by default: protobuf is sent and preferred, JSON accepted.
// With -media json they ask for JSON alone.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// The namespaces of one turn.
var namespace, fanSpace, podSpace string

type sizes struct {
	workers, creates, updates, gets, lists, listed, watchers, writes int
}

type figure struct {
	PerSecond float64 `json:"per_s"`
	Own       float64 `json:"client_ms"` // processor time of this program per operation
	P50       float64 `json:"p50_ms,omitempty"`
	P99       float64 `json:"p99_ms,omitempty"`
	Bytes     int     `json:"bytes,omitempty"`
}

type load struct {
	ctx    context.Context
	client kubernetes.Interface
	sizes  sizes
	found  map[string]figure
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the cluster")
	turn := flag.Int("turn", 0, "number that keeps the objects of several runs apart")
	media := flag.String("media", "", "json: ask for JSON alone")
	topics := flag.String("topics", "creates,updates,gets,lists,events", "what to measure, in this order")
	var n sizes
	flag.IntVar(&n.workers, "workers", 16, "operations at a time")
	flag.IntVar(&n.creates, "creates", 8000, "objects to create")
	flag.IntVar(&n.updates, "updates", 8000, "updates to make")
	flag.IntVar(&n.gets, "gets", 40000, "objects to get")
	flag.IntVar(&n.lists, "lists", 800, "lists to ask for")
	flag.IntVar(&n.listed, "listed", 500, "pods in a list")
	flag.IntVar(&n.watchers, "watchers", 100, "watchers of the fan-out")
	flag.IntVar(&n.writes, "writes", 4000, "writes that fan out")
	flag.Parse()
	namespace = fmt.Sprintf("bench-%d", *turn)
	fanSpace, podSpace = namespace+"-fan"+*media, namespace+"-pods"
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	found, err := run(ctx, *kubeconfig, *media, strings.Split(*topics, ","), n)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, kubeconfig, media string, topics []string, n sizes) (map[string]figure, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.UserAgent = "apiload"
	if media == "json" {
		config.ContentType = "application/json"
		config.AcceptContentTypes = "application/json"
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	l := &load{ctx, client, n, map[string]figure{}}
	if err := l.prepare(); err != nil {
		return nil, err
	}
	steps := map[string]func() error{
		"creates": l.creates, "updates": l.updates, "gets": l.gets, "lists": l.lists, "events": l.events,
	}
	for _, topic := range topics {
		step, ok := steps[topic]
		if !ok {
			return nil, fmt.Errorf("no topic is called %q", topic)
		}
		if err := step(); err != nil {
			return nil, fmt.Errorf("%s: %w", topic, err)
		}
	}
	return l.found, nil
}

// prepare makes the namespaces, and the account that pods need where no controller makes it.
func (l *load) prepare() error {
	for _, name := range []string{namespace, fanSpace, podSpace} {
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := l.client.CoreV1().Namespaces().Create(l.ctx, space, metav1.CreateOptions{}); known(err) {
			return err
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := l.client.CoreV1().ServiceAccounts(podSpace).Create(l.ctx, account, metav1.CreateOptions{}); known(err) {
		return err
	}
	return nil
}

func known(err error) bool { return err != nil && !apierrors.IsAlreadyExists(err) }

// each runs the numbers 0 to count-1 through work, a few at a time, and notes the rate and the times under name.
func (l *load) each(name string, count int, work func(worker, number int) error) error {
	took := make([]time.Duration, count)
	failures := make(chan error, l.sizes.workers)
	begin, before := time.Now(), processorTime()
	for worker := range l.sizes.workers {
		go func() {
			for number := worker; number < count; number += l.sizes.workers {
				start := time.Now()
				if err := work(worker, number); err != nil {
					failures <- err
					return
				}
				took[number] = time.Since(start)
			}
			failures <- nil
		}()
	}
	var first error
	for range l.sizes.workers {
		if err := <-failures; err != nil && first == nil {
			first = err
		}
	}
	elapsed := time.Since(begin)
	if name != "" {
		slices.Sort(took)
		l.found[name] = figure{
			PerSecond: float64(count) / elapsed.Seconds(),
			Own:       (processorTime() - before).Seconds() * 1000 / float64(count),
			P50:       took[count/2].Seconds() * 1000,
			P99:       took[count*99/100].Seconds() * 1000,
		}
	}
	return first
}

// processorTime is what this program has used so far, in all its threads.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
