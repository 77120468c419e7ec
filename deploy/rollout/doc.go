// Package rollout changes the members of a running cluster without interrupting it: it observes the cluster,
// orders its nodes into waves, drains and uncordons members, admits and removes them, and verifies the result.
//
// [Observe] asks the engines of a hive for their members. [Cluster.OrderWaves] decides which nodes change at
// the same time, [Cluster.WithDrain] changes one of them, and [Cluster.Verify] waits for the conditions of the
// engines.
package rollout
