// The lab's own small program: static, without dependencies, in one image.
//
//	tool pause                    sleep until told to end, reaping orphans: the process of a pod sandbox
//	tool serve [ADDRESS]          answer every HTTP request with who was asked, and by whom
//	tool get URL                  fetch a page and print it
//	tool lookup NAME [SERVER]     resolve a name, at the DNS server given or at the system's
//
// It exists because a static busybox cannot resolve names with wget, and because a node of the lab has no registry to
// pull a larger tool from.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"
)

const patience = 5 * time.Second

func main() {
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == "pause" {
		if len(args) == 1 && args[0] == "-v" {
			// kubeadm upgrade runs it so, to see whether pods can run.
			fmt.Println("pause of the lab")
			return
		}
		args = []string{"pause"}
	}
	if err := run(args); err != nil {
		fmt.Fprintln(os.Stderr, "tool:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 1 && args[0] == "pause" {
		return pause()
	}
	if len(args) >= 1 && args[0] == "serve" {
		return serve(append(args[1:], ":8080")[0])
	}
	if len(args) == 2 && args[0] == "get" {
		return get(args[1])
	}
	if len(args) >= 2 && args[0] == "lookup" {
		return lookup(args[1], append(args[2:], "")[0])
	}
	return fmt.Errorf("usage: tool pause | serve [ADDRESS] | get URL | lookup NAME [SERVER]")
}

func pause() error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return nil
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

func serve(address string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	go func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
		<-signals
		os.Exit(0)
	}()
	answer := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]string{
			"hostname": name, "client": r.RemoteAddr, "host": r.Host, "path": r.URL.Path,
		})
	}
	server := &http.Server{Addr: address, Handler: http.HandlerFunc(answer), ReadHeaderTimeout: patience}
	return server.ListenAndServe()
}

func get(url string) error {
	client := &http.Client{Timeout: patience}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		return err
	}
	if response.StatusCode >= 400 {
		return fmt.Errorf("%s", response.Status)
	}
	return nil
}

func lookup(name, server string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resolver := &net.Resolver{PreferGo: true}
	if server != "" {
		resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(server, "53"))
		}
	}
	addresses, err := resolver.LookupHost(ctx, name)
	if err != nil {
		return err
	}
	sort.Strings(addresses)
	fmt.Println(strings.Join(addresses, "\n"))
	return nil
}
