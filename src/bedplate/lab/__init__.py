"""Real Kubernetes on one machine.

`binaries` finds or builds the programs, `controlplane` runs etcd and a kube-apiserver without root, `cluster` runs
whole clusters whose nodes are namespaces with their own containerd and kubelet (root). `cli` is the command line of
all three.
"""
