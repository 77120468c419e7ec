// Package enginetest is the contract suite that every [engine.Engine] must pass: the fake engine of the
// tests and Kubernetes. It tests what callers rely on, with nodes that have work, that block a drain, and
// whose programs do not work.
package enginetest
