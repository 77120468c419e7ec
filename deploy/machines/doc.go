// Package machines turns the machines of a hive into running ones, and removes them.
//
// [Manager.MakePlan] compares the machines of the hive with those that the hypervisors and the state have,
// and changes nothing. [Starter.AskAndRecord] writes the plan to the state before any effect, and
// [Starter.Start] carries it out: prerequisites (networks and images), creation, and the wait until a node can
// be deployed. Each machine of the [Set] becomes ready independently of the others.
// [Manager.PlanDestroy] and [Manager.Destroy] remove machines, [Manager.Status] and [Manager.Examine] report.
package machines
