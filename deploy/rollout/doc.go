// Package rollout executes a plan without interrupting a running cluster: it observes the cluster, changes nodes wave by
// wave, drains and uncordons members, admits and removes them, and verifies the result.
//
// [Observer.Observe] asks the engines of a hive for their members. Package plan decides which nodes change at the same time.
// [Rollout.Execute] changes them, and [Cluster.Verify] waits for the conditions of the engines.
package rollout
