package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// kit has the files that all seeds share: they are built once.
type kit struct {
	dir     string
	program string // nixbench
	nixpkgs string // the fixture
	image   string // of containers
}

// assemble builds nixbench, the fixture, and the image unless it is cached.
func assemble() (*kit, error) {
	dir, err := os.MkdirTemp("", "nixbench-faults-")
	if err != nil {
		return &kit{}, err
	}
	k := &kit{dir: dir, program: filepath.Join(dir, "nixbench"), nixpkgs: filepath.Join(dir, "nixpkgs")}
	if err := errors.Join(fixture.BuildProgram(k.program), fixture.Assemble(k.nixpkgs)); err != nil {
		return k, err
	}
	k.image, err = lab.BuildImage("container")
	return k, err
}

func (k *kit) remove() { _ = os.RemoveAll(k.dir) }

// stateSize is the size in bytes of the file system that contains the state folder. It is small, so that a fault can fill it.
const stateSize = 8 << 20

// sandbox is the hive of one seed, its state folder, and its lab.
type sandbox struct {
	*kit
	lab   *lab.Lab
	up    time.Time
	dir   string    // folder of the hive
	token string    // the text of a key of the hive: a secret
	nonce string    // random text in the systems, so that each sandbox has something to build
	log   io.Writer // receives commands with their output, to examine a failure

	output []string // all that nixbench printed
}

// newSandbox starts a lab for one seed. If it fails, it returns the sandbox together with the error, so that close can
// remove the parts that exist.
func newSandbox(k *kit, labDir string, log io.Writer) (*sandbox, error) {
	s := &sandbox{kit: k, token: rand.Text(), nonce: rand.Text(), log: log}
	var err error
	if s.dir, err = os.MkdirTemp(k.dir, "hive-"); err != nil {
		return s, err
	}
	if s.lab, err = lab.Up(labDir, 0, "--hypervisor"); err != nil {
		return s, err
	}
	s.up = time.Now()
	if err := os.Mkdir(s.stateRoot(), 0o700); err != nil {
		return s, err
	}
	return s, syscall.Mount("tmpfs", s.stateRoot(), "tmpfs", 0, fmt.Sprintf("mode=700,size=%d", stateSize))
}

// stateRoot returns the path of the folder on which the small file system for the state is mounted.
func (s *sandbox) stateRoot() string { return filepath.Join(s.dir, ".nixbench") }

// state returns the path of a file in the cluster's state folder.
func (s *sandbox) state(name string) string { return filepath.Join(s.stateRoot(), "demo", name) }

// close ends the lab and removes the hive.
func (s *sandbox) close() error {
	_ = syscall.Unmount(s.stateRoot(), syscall.MNT_DETACH) // fails if it is not mounted
	var err error
	if s.lab != nil {
		err = s.lab.Down()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// save copies the state folder and the lab's logs to dir.
func (s *sandbox) save(dir string) error {
	// The logs must not contain keys.
	err := errors.Join(s.command(exec.Command("cp", "-R", s.stateRoot(), filepath.Join(dir, "state"))),
		os.RemoveAll(filepath.Join(dir, "state", "demo", "secrets")))
	if s.lab != nil {
		err = errors.Join(err, s.lab.SaveLogs(filepath.Join(dir, "lab")))
	}
	return err
}

// writeHive writes hive.nix with the number of nodes and the version of c.
func (s *sandbox) writeHive(c cluster) error {
	fmt.Fprintf(s.log, "\n# hive with %d nodes of version %s\n", c.count, c.version)
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
      # The same for all seeds: it makes the copy large.
      environment.etc."big".source = derivation {
        name = "big-%s"; system = builtins.currentSystem; builder = "/bin/sh"; args = [ "-c" "/usr/bin/head -c 20000000 /dev/urandom > $out" ];
      };
      # A different derivation for each seed, so that there is something to build.
      environment.etc."own".source = derivation {
        name = "own"; system = builtins.currentSystem; builder = "/bin/sh"; args = [ "-c" "/usr/bin/sleep 0.3; echo $nonce > $out" ]; nonce = "%s-%s";
      };
    } ];
  };
}
`, s.nixpkgs, s.lab.URIs["lxc"], s.lab.PoolPath, s.token, c.version, c.count, s.image, c.version, c.version, s.nonce, c.version)
	return os.WriteFile(filepath.Join(s.dir, "hive.nix"), []byte(text), 0o600)
}

// nixbench returns a command that runs nixbench in the lab's network.
func (s *sandbox) nixbench(ctx context.Context, args ...string) *exec.Cmd {
	cmd := s.lab.Command(ctx, s.program, append([]string{"-f", filepath.Join(s.dir, "hive.nix")}, args...)...)
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig, "HOME="+s.dir, "SSH_AUTH_SOCK=", "NO_COLOR=1")
	return cmd
}

// command runs a command that is not nixbench. An error contains the output of the command.
func (s *sandbox) command(cmd *exec.Cmd) error {
	_, err := output(cmd)
	return err
}

// virsh runs virsh, which has a time limit, on the lab's libvirt, and returns its output.
func (s *sandbox) virsh(ctx context.Context, args ...string) (string, error) {
	return output(s.lab.Command(ctx, "timeout", append([]string{"20", "virsh", "-q", "-c", s.lab.URIs["lxc"]}, args...)...))
}

func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args[1:], " "), err, text)
	}
	return text, nil
}

// retry calls try until try succeeds or ctx ends. The end of ctx does not cancel a call of try that has begun.
func retry(ctx context.Context, try func(context.Context) error) error {
	for {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		err := try(limited)
		cancel()
		if err == nil {
			return nil
		}
		if !engine.Sleep(ctx, 100*time.Millisecond) {
			return err
		}
	}
}
