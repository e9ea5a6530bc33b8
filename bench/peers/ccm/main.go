// A cloud controller manager as Go authors write one: k8s.io/cloud-provider with a provider that asks the simulated
// Oxide API about every node by itself. The peer of our manager in `make bench`; instances only, no load balancers.
//
// In: the usual flags of such a manager, and OXIDE_HOST, OXIDE_TOKEN, OXIDE_PROJECT. Out: initialised nodes.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
)

const (
	providerName = "peer"
	idPrefix     = "oxide://"
	callTimeout  = 30 * time.Second
)

type cloud struct {
	host, token, project string
	client               *http.Client
}

func (c *cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (c *cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return nil, false }
func (c *cloud) Instances() (cloudprovider.Instances, bool)                        { return nil, false }
func (c *cloud) InstancesV2() (cloudprovider.InstancesV2, bool)                    { return c, true }
func (c *cloud) Zones() (cloudprovider.Zones, bool)                                { return nil, false }
func (c *cloud) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (c *cloud) Routes() (cloudprovider.Routes, bool)                              { return nil, false }
func (c *cloud) ProviderName() string                                              { return providerName }
func (c *cloud) HasClusterID() bool                                                { return true }

// instance has the fields of the answer that a node needs.
type instance struct {
	ID       string `json:"id"`
	Hostname string `json:"hostname"`
	NCPUs    int    `json:"ncpus"`
	Memory   uint64 `json:"memory"`
	RunState string `json:"run_state"`
}

type apiError struct {
	status int
	Code   string `json:"error_code"`
	Text   string `json:"message"`
}

func (e *apiError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.Text) }

func (c *cloud) get(ctx context.Context, path string, query url.Values, into any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	address := c.host + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("API-Version", "2026060800.0.0")
	answer, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		failure := &apiError{status: answer.StatusCode}
		_ = json.Unmarshal(body, failure)
		return failure
	}
	return json.Unmarshal(body, into)
}

func (c *cloud) view(ctx context.Context, node *v1.Node) (*instance, error) {
	found := &instance{}
	if id := strings.TrimPrefix(node.Spec.ProviderID, idPrefix); id != "" {
		return found, c.get(ctx, "/v1/instances/"+id, nil, found)
	}
	return found, c.get(ctx, "/v1/instances/"+node.Name, url.Values{"project": {c.project}}, found)
}

func (c *cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	_, err := c.view(ctx, node)
	if failure, is := err.(*apiError); is && failure.Code == "ObjectNotFound" {
		return false, nil
	}
	return err == nil, err
}

func (c *cloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	found, err := c.view(ctx, node)
	return err == nil && found.RunState == "stopped", err
}

func (c *cloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	found, err := c.view(ctx, node)
	if err != nil {
		return nil, err
	}
	var interfaces struct {
		Items []struct {
			Stack struct {
				Type  string          `json:"type"`
				Value json.RawMessage `json:"value"`
			} `json:"ip_stack"`
		} `json:"items"`
	}
	if err := c.get(ctx, "/v1/network-interfaces", url.Values{"instance": {found.ID}}, &interfaces); err != nil {
		return nil, err
	}
	var external struct {
		Items []struct {
			Kind string `json:"kind"`
			IP   string `json:"ip"`
		} `json:"items"`
	}
	if err := c.get(ctx, "/v1/instances/"+found.ID+"/external-ips", nil, &external); err != nil {
		return nil, err
	}
	addresses := []v1.NodeAddress{{Type: v1.NodeHostName, Address: found.Hostname}}
	for _, one := range interfaces.Items {
		for _, ip := range stackAddresses(one.Stack.Type, one.Stack.Value) {
			addresses = append(addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
		}
	}
	for _, one := range external.Items {
		if one.Kind != "snat" {
			addresses = append(addresses, v1.NodeAddress{Type: v1.NodeExternalIP, Address: one.IP})
		}
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID:    idPrefix + found.ID,
		InstanceType:  fmt.Sprintf("%d-%d", found.NCPUs, found.Memory>>30),
		NodeAddresses: addresses,
	}, nil
}

func stackAddresses(kind string, value json.RawMessage) []string {
	type single struct {
		IP string `json:"ip"`
	}
	if kind == "dual_stack" {
		var both struct{ V4, V6 single }
		if json.Unmarshal(value, &both) != nil {
			return nil
		}
		return []string{both.V4.IP, both.V6.IP}
	}
	var one single
	if json.Unmarshal(value, &one) != nil {
		return nil
	}
	return []string{one.IP}
}

func main() {
	cloudprovider.RegisterCloudProvider(providerName, func(io.Reader) (cloudprovider.Interface, error) {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = 64
		return &cloud{
			host:    strings.TrimSuffix(os.Getenv("OXIDE_HOST"), "/"),
			token:   os.Getenv("OXIDE_TOKEN"),
			project: os.Getenv("OXIDE_PROJECT"),
			client:  &http.Client{Transport: transport},
		}, nil
	})
	settings, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatal(err)
	}
	command := app.NewCloudControllerManagerCommand(settings, open, app.DefaultInitFuncConstructors, names.CCMControllerAliases(),
		cliflag.NamedFlagSets{}, wait.NeverStop)
	os.Exit(cli.Run(command))
}

func open(completed *config.CompletedConfig) cloudprovider.Interface {
	found, err := cloudprovider.InitCloudProvider(completed.ComponentConfig.KubeCloudShared.CloudProvider.Name, "")
	if err != nil || found == nil {
		klog.Fatalf("no cloud provider: %v", err)
	}
	return found
}
