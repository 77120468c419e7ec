// Command faults injects faults into runs of nixbench, and checks that the next run repairs
// everything:
//
//	go run ./e2e/faults -seeds 100        # seeds 1 to 100, several at the same time
//	go run ./e2e/faults -seed 42          # one of them
//
// A seed selects which operation runs (a first apply, a change, scaling, a rollback, a
// reboot, destroy), which fault is injected, in which phase, how long after the phase began,
// and on which node. The same seed always selects the same. Each seed has a lab of its
// own: an empty hypervisor, on which nixbench creates two containers.
//
// A fault is data ([fault]): how it is injected and healed. A phase is recognised in
// nixbench's own event stream ([phase]). When the operation has ended, the fault is healed,
// and these must hold:
//
//   - the operation's exit code is a documented one, and its message names what failed;
//   - the next apply succeeds within a time limit; after a destroy, for every second seed, another
//     destroy succeeds before, and removes everything;
//   - the apply after it finds nothing to do;
//   - all nodes can be reached, and run the system and have the key that the hive says;
//   - state.json has no intent left;
//   - destroy removes every machine, disk, network, key and record of a machine;
//   - no secret is in what nixbench printed or recorded, nor in libvirt's logs.
//
// It needs root and the packages of e2e/lab. The folder of the logs has the log of each seed, and for a
// seed that fails also its state folder and libvirt's logs.
package main
