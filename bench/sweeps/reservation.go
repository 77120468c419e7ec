package sweeps

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// keepReservation copies the cluster's state, which contains addresses and keys, before the cluster has a machine. Remove restores this
// copy, so that new machines get the same addresses and keys.
func (c *cluster) keepReservation() error {
	err := copyState(string(c.state), filepath.Join(c.folder, ".nixbench", "reservation"))
	if err == nil && c.shared != "" {
		err = copyState(string(c.state), c.shared)
	}
	return err
}

// takeReservation copies the addresses and keys of the hive's last sweep into the cluster's state. It must run before the first
// configuration is built.
func (c *cluster) takeReservation() error {
	if c.shared == "" || durable.Exists(filepath.Join(string(c.state), "state.json")) || !durable.Exists(filepath.Join(c.shared, "state.json")) {
		return nil
	}
	return copyState(c.shared, string(c.state))
}

// copyState copies a state folder, without the records of runs, the garbage collector roots and the locks.
func copyState(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case d.IsDir() && (name == "runs" || name == "gcroots"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(target, 0o700)
		case name == "lock" || !d.Type().IsRegular():
			return nil
		}
		data, err := durable.Read(path, durable.RecordSize)
		if err != nil {
			return err
		}
		return durable.Write(target, data)
	})
}

// hasMachines reports whether, according to the cluster's state folder, machines of the sweep may exist.
func (c *cluster) hasMachines() (bool, error) {
	source, err := nixeval.ParseFileSource(c.source)
	if c.sweep.Flake {
		source, err = nixeval.ParseFlakeSource(c.source)
	}
	if err != nil {
		return false, err
	}
	dir, err := state.Locate(source, c.sweep.Cluster)
	if err != nil {
		return false, err
	}
	recorded, err := dir.Load()
	return err == nil && hasMachines(recorded), err
}

// hasMachines reports whether at least one machine that is recorded in the state may exist.
func hasMachines(s *state.State) bool {
	for _, m := range s.Machines {
		if m.Image != nil || m.Created != nil {
			return true
		}
	}
	return len(s.Intents) > 0
}
