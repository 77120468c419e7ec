module nixbench.invalid/kube/flannel-cni

go 1.14

require github.com/containernetworking/plugins v0.9.1
