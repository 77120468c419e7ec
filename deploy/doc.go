// Package deploy is the door to everything that nixbench does with a hive. [Open] takes a [Request], which is made of the flags of a command,
// and returns a [Session]: the hive and the selected nodes, the cluster's state, and the connections to nodes and hypervisors. A session has a
// method for each use case, such as [Session.Apply], [Session.Plan] and [Session.Status].
//
// Only Open locates and surveys a hive, checks its state folder and takes the cluster's lock; only a session records runs.
package deploy
