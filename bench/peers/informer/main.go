// Command informer fills a client-go informer with all nodes of a cluster and reports, as one line of JSON, how long
// that took and how much memory it needs.
//
// The three ways client-go can do it: "json" (one list, as JSON), "streaming" (a watch that begins with all objects,
// as JSON) and "protobuf" (one list, as protobuf, which only built-in kinds offer).
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

type result struct {
	Seconds float64 `json:"seconds"`
	Objects int     `json:"objects"`
	RSS     int64   `json:"rss_bytes"`
	Least   int64   `json:"least_bytes"`
	Peak    int64   `json:"peak_bytes"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the cluster")
	mode := flag.String("mode", "json", "json, streaming or protobuf")
	flag.Parse()
	found, err := run(*kubeconfig, *mode)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}

func run(kubeconfig, mode string) (result, error) {
	// client-go reads its feature gates from the environment when it first needs one.
	os.Setenv("KUBE_FEATURE_WatchListClient", fmt.Sprint(mode == "streaming"))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	begin := time.Now()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return result{}, err
	}
	config.ContentType = "application/json"
	config.AcceptContentTypes = "application/json"
	if mode == "protobuf" {
		config.ContentType = "application/vnd.kubernetes.protobuf"
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return result{}, err
	}
	informer := informers.NewSharedInformerFactory(client, 0).Core().V1().Nodes().Informer()
	go informer.RunWithContext(ctx)
	// HasSynced is asked often: the helper of client-go that waits for it looks only every 100 ms.
	for !informer.HasSynced() {
		if ctx.Err() != nil {
			return result{}, fmt.Errorf("not synced: %w", ctx.Err())
		}
		time.Sleep(time.Millisecond)
	}
	took := time.Since(begin)
	peak := memory("VmHWM")
	runtime.GC()
	time.Sleep(time.Second)
	steady := memory("VmRSS")
	debug.FreeOSMemory()
	return result{took.Seconds(), count(informer.GetStore()), steady, memory("VmRSS"), peak}, nil
}

func count(store cache.Store) int { return len(store.ListKeys()) }

// memory reads one figure of this process from the kernel.
func memory(field string) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			var kilobytes int64
			fmt.Sscan(rest, &kilobytes)
			return kilobytes * 1024
		}
	}
	return 0
}
