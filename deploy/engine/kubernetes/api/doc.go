// Package api contains what nixbench does with any Kubernetes cluster: it runs kubectl on the control planes ([Client]), drains
// nodes, changes their labels and taints, and checks objects and the network of the pods.
package api
