// Command faults breaks nixbench's runs on purpose, and checks that the next one puts
// everything right:
//
//	go run ./e2e/faults -seeds 100        # seeds 1 to 100, on as many labs as there are cores for
//	go run ./e2e/faults -seed 42          # one of them
//	go run ./e2e/faults -seeds 100 -list  # what they choose, without running anything
//
// A seed decides which operation runs (a first apply, a change, scaling, a rollback, a
// reboot, destroy), which fault is injected, in which phase, how long after the phase began,
// and on which node. The same seed always chooses the same. Each seed has a lab of its
// own: an empty hypervisor, on which nixbench makes two containers.
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
// It needs root and what e2e/lab needs. Each seed's log is in the report's folder; of one that
// fails, its state folder and libvirt's logs, too.
package main
