// Package guests has what the end-to-end tests of the schedulers share: a hive whose machines nixbench creates as
// containers on an empty hypervisor of the lab. A suite embeds [Cluster] in a type of its own, which writes the text of
// the hive and has the methods for its scheduler:
//
//	type cluster struct{ *guests.Cluster }
//
//	func TestLifecycle(t *testing.T) {
//		c := &cluster{guests.New(t, program, 4*time.Minute, "--slurm")}
//		c.WriteHiveFile(fmt.Sprintf(hive, c.Lab.URIs["lxc"], c.Lab.PoolPath, c.Image))
//		c.Run("apply")
//		c.CheckOutput("controller-1", "runuser -u nobody -- srun --chdir=/ hostname", "compute-1")
//	}
package guests
