// Package machine creates, starts and removes the machines that a hive describes.
//
// The package changes compares the desired machines with the observed machines, without any I/O.
// [Manager.MakePlan] compares the machines in the hive with the machines on the hypervisors and in the
// state, and changes nothing. [Starter.AskAndRecord] writes the plan to the state before any machine is
// changed, and [Starter.Start] executes the plan: it prepares networks and images, creates or starts the machines,
// and waits until the nodes can be deployed. Each machine of the [Set] becomes ready independently of the others.
// [Manager.PlanDestroy] and [Manager.Destroy] remove machines, [Manager.Status] and [Manager.Examine] report.
package machine
