package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// stateSize is the size of the file system that the state folder is on.
const stateSize = 8 << 20

// site is one seed's hive, its state folder, and the lab that it is for.
type site struct {
	*kit
	lab    *lab.Lab
	up     time.Time
	dir    string    // of the hive
	token  string    // the text of a key of the hive: a secret
	nonce  string    // so that each site has something to build
	holder *exec.Cmd // has the mount namespace in which the state folder is a file system of its own
	log    io.Writer // all that happened, for who looks into a failure

	addresses map[string]place // of nodes, by name
	said      []string         // all that nixbench printed
}

// newSite starts a lab. It returns the site beside an error, too, so that close ends what was begun.
func newSite(ctx context.Context, k *kit, labDir string, log io.Writer) (*site, error) {
	s := &site{kit: k, token: random(), nonce: random(), log: log, addresses: map[string]place{}}
	var err error
	if s.dir, err = os.MkdirTemp(k.dir, "hive-"); err != nil {
		return s, err
	}
	if s.lab, _, err = lab.Up(labDir, 0, lab.WithHypervisor()); err != nil {
		return s, err
	}
	s.up = time.Now()
	return s, s.mountState(ctx)
}

func random() string {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}

// mountState puts the state folder on a small file system, which only nixbench sees: in a mount namespace
// that a process holds, which ends with the lab or with this program.
func (s *site) mountState(ctx context.Context) error {
	if err := os.Mkdir(s.stateMount(), 0o700); err != nil {
		return err
	}
	s.holder = s.lab.Command(context.WithoutCancel(ctx), "unshare", "--mount", "--propagation", "private", "sh", "-c",
		fmt.Sprintf("mount -t tmpfs -o mode=700,size=%d tmpfs %s && echo mounted && exec cat", stateSize, s.stateMount()))
	hold, err := s.holder.StdinPipe() // closes when this program ends
	if err != nil {
		return err
	}
	out, err := s.holder.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.holder.Start(); err != nil {
		return err
	}
	word := make([]byte, len("mounted"))
	if _, err := io.ReadFull(out, word); err != nil {
		hold.Close()
		return fmt.Errorf("mount a file system for the state folder: %w", err)
	}
	return nil
}

func (s *site) stateMount() string { return filepath.Join(s.dir, ".nixbench") }

// seen is the state folder's file system, as it can be reached from here.
func (s *site) seen() string {
	return filepath.Join("/proc", fmt.Sprint(s.holder.Process.Pid), "root", s.stateMount())
}

// state is a file of the cluster's state folder.
func (s *site) state(name string) string { return filepath.Join(s.seen(), "demo", name) }

// close ends the lab and removes the hive.
func (s *site) close() error {
	if s.holder != nil && s.holder.Process != nil {
		_ = s.holder.Process.Kill()
		_ = s.holder.Wait()
	}
	var err error
	if s.lab != nil {
		err = s.lab.Down()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// save copies what explains a failure to dir.
func (s *site) save(dir string) error {
	var errs []error
	if s.holder != nil {
		out, err := exec.Command("cp", "-R", s.seen(), filepath.Join(dir, "state")).CombinedOutput()
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %s", err, out))
		}
		// Keys have no place in a report.
		errs = append(errs, os.RemoveAll(filepath.Join(dir, "state", "demo", "secrets")))
	}
	if s.lab != nil {
		errs = append(errs, s.lab.SaveLogs(filepath.Join(dir, "lab")))
	}
	return errors.Join(errs...)
}

// write writes the hive.
func (s *site) write(c cluster) error {
	fmt.Fprintf(s.log, "\n# the hive asks for %d nodes of version %s\n", c.count, c.version)
	text := fmt.Sprintf(`{
  meta.nixpkgs = import %s { system = "x86_64-linux"; };
  meta.name = "demo";
  cluster.network.name = "demo";
  cluster.hypervisors.default = { uri = "%s"; poolPath = "%s"; };
  defaults = {
    networking.firewall.enable = false;
    system.stateVersion = "25.05";
    deployment.sshOptions = [ "-o" "ConnectTimeout=5" "-o" "ServerAliveInterval=3" "-o" "ServerAliveCountMax=3" ];
    deployment.keys.token.text = "%s-%s";
  };
  roles.w = {
    count = %d; vcpus = 1; memory = "512M"; image = "%s"; init = "/usr/sbin/lab-init";
    modules = [ {
      environment.etc."version".text = "%s\n";
      # The same for all sites: something to copy.
      environment.etc."big".source = derivation {
        name = "big-%s"; system = builtins.currentSystem; builder = "/bin/sh"; args = [ "-c" "/usr/bin/head -c 20000000 /dev/urandom > $out" ];
      };
      # Another one for each site: something to build.
      environment.etc."own".source = derivation {
        name = "own"; system = builtins.currentSystem; builder = "/bin/sh"; args = [ "-c" "/usr/bin/sleep 0.3; echo $nonce > $out" ]; nonce = "%s-%s";
      };
    } ];
  };
}
`, s.nixpkgs, s.lab.URI("lxc"), s.lab.PoolPath(), s.token, c.version, c.count, s.image, c.version, c.version, s.nonce, c.version)
	return os.WriteFile(filepath.Join(s.dir, "hive.nix"), []byte(text), 0o600)
}

// nixbench is the command, in the lab's network and with its state folder on the small file system.
func (s *site) nixbench(ctx context.Context, args ...string) *exec.Cmd {
	enter := []string{fmt.Sprintf("--mount=/proc/%d/ns/mnt", s.holder.Process.Pid), "--", s.program, "-f", filepath.Join(s.dir, "hive.nix")}
	cmd := s.lab.Command(ctx, "nsenter", append(enter, args...)...)
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig, "HOME="+s.dir, "SSH_AUTH_SOCK=", "NO_COLOR=1")
	return cmd
}

// command runs something that is not nixbench.
func (s *site) command(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args[1:], " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// retry tries until it works, or ctx ends. A try that has begun is not cut off by that.
func (s *site) retry(ctx context.Context, try func(context.Context) error) error {
	for {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		err := try(limited)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
