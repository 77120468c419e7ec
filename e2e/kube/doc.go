// Package kube builds what lab machines need to be nodes of a real Kubernetes cluster,
// and proves that it is enough: its test makes a cluster by hand, with nothing of
// nixbench. When a test of the modules fails and this one does not, it is the modules.
//
// The build is the program "build" beside this file; "lab up --kubernetes" calls it.
package kube
