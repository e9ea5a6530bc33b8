// Command walk drives one API server with client-go the way programs do, one named step at a time.
//
// In: a kubeconfig, a namespace that exists, the name of a step. Out: exit code 0 and what was seen, one fact per line; or the first
// thing that was not as promised, and exit code 1.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const patience = 60 * time.Second

// world is what every step gets: where the server is, a namespace of its own, and the requests made so far.
type world struct {
	config    *rest.Config
	namespace string
	requests  *requestLog
}

type step func(ctx context.Context, w *world) error

var steps = map[string]step{
	"typed":     typedClient,
	"informer":  informers,
	"election":  leaderElection,
	"dynamic":   dynamicClient,
	"apply":     applyConfigurations,
	"events":    eventRecorders,
	"discovery": discoveryAndMapper,
	"smaller":   smallerClients,
}

// requestLog remembers the path and query of every request, to say how client-go asked.
type requestLog struct {
	next http.RoundTripper
	mu   sync.Mutex
	seen []string
}

func (l *requestLog) RoundTrip(request *http.Request) (*http.Response, error) {
	l.mu.Lock()
	l.seen = append(l.seen, fmt.Sprintf("%s %s %s", request.Method, request.URL.RequestURI(), request.Header.Get("Content-Type")))
	l.mu.Unlock()
	return l.next.RoundTrip(request)
}

func (l *requestLog) count(parts ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := 0
	for _, each := range l.seen {
		matches := true
		for _, part := range parts {
			matches = matches && strings.Contains(each, part)
		}
		if matches {
			total++
		}
	}
	return total
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of the kubeconfig")
	namespace := flag.String("namespace", "default", "namespace to work in")
	name := flag.String("step", "", "which step to walk")
	flag.Parse()
	run, known := steps[*name]
	if !known {
		names := []string{}
		for each := range steps {
			names = append(names, each)
		}
		sort.Strings(names)
		fmt.Println(strings.Join(names, "\n"))
		os.Exit(2)
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fmt.Println("kubeconfig:", err)
		os.Exit(1)
	}
	config.QPS, config.Burst = 200, 400
	requests := &requestLog{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		requests.next = next
		return requests
	})
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if err := run(ctx, &world{config: config, namespace: *namespace, requests: requests}); err != nil {
		fmt.Println("FAILED:", err)
		os.Exit(1)
	}
}

// until polls until the condition holds.
func until(ctx context.Context, what string, condition func() (bool, error)) error {
	deadline := time.Now().Add(patience)
	for {
		done, err := condition()
		if err != nil || done {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not seen within %s: %s", patience, what)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
