package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

const sshLong = `Log in to a node with OpenSSH and the hive's deployment.targetHost, targetUser,
targetPort and sshOptions. The arguments after -- are the remote command, as for
ssh. The exit code is that of ssh: the command's, or 255.`

func (a *app) sshCommand() *cobra.Command {
	var acceptNew bool
	cmd := &cobra.Command{
		Use:   "ssh NODE [-- COMMAND…]",
		Short: "Log in to a node",
		Long:  sshLong,
		Example: `  nixbench ssh web-1
  nixbench ssh web-1 -- journalctl -fu nginx`,
		Args: cobra.MinimumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if a.json {
			return newUsageError("ssh: --json is not supported; use nixbench exec --json to run a command")
		}
		command := args[1:]
		if len(command) > 0 && command[0] == "--" {
			command = command[1:]
		}
		return a.ssh(args[0], command, acceptNew)
	})
	f := cmd.Flags()
	f.SetInterspersed(false) // flags after the node's name are arguments of the remote command
	f.BoolVar(&acceptNew, "accept-new-host-keys", false, "accept and store the key of a host that known_hosts does not contain")
	return cmd
}

func (a *app) ssh(name string, command []string, acceptNew bool) error {
	_, hive, node, err := a.surveyNode(name)
	if err != nil {
		return err
	}
	target, err := a.findTarget(hive, node, acceptNew)
	if err != nil {
		return err
	}
	program, err := exec.LookPath("ssh")
	if err != nil {
		return failure.WithHint(fmt.Errorf("%s: %w", name, err), "install OpenSSH's client")
	}
	argv := buildSSHArgv(target, a.dir.KnownHosts(), acceptNew, command)
	if err := a.view.Close(); err != nil {
		return err
	}
	if err := syscall.Exec(program, argv, os.Environ()); err != nil {
		return fmt.Errorf("%s: %s: %w", name, program, err)
	}
	return nil
}

// findTarget returns the target of a node. If the node has several hosts, findTarget logs in, to determine which
// of them answers.
func (a *app) findTarget(hive *nixeval.Hive, node nixeval.Node, acceptNew bool) (remote.Target, error) {
	conns := a.newFleet(hive, fleetFlags{acceptNew: acceptNew}, nil)
	defer conns.Close()
	target, err := conns.Target(node)
	if err != nil || len(target.Fallbacks) == 0 {
		return target, err
	}
	host, err := conns.Host(a.ctx, node)
	if err != nil {
		return target, err
	}
	if _, err := host.Conn(a.ctx); err != nil {
		return target, err
	}
	target.Host, target.Fallbacks = host.Config().Alias, nil
	return target, nil
}

// surveyNode surveys the hive and returns the node with this name.
func (a *app) surveyNode(name string) (*nixeval.Evaluator, *nixeval.Hive, nixeval.Node, error) {
	e, err := a.newEvaluator()
	if err != nil {
		return nil, nil, nixeval.Node{}, err
	}
	hive, err := a.surveyHive(e)
	if err != nil {
		return nil, nil, nixeval.Node{}, err
	}
	node, err := findNode(hive, name)
	return e, hive, node, err
}

// findNode returns the hive's node with the given name. It fails if the node's deployment options
// are broken.
func findNode(hive *nixeval.Hive, name string) (nixeval.Node, error) {
	for _, n := range hive.Nodes {
		if n.Name == name {
			if err := hive.Broken[n.Unit]; err != nil {
				return n, &nixeval.EvalError{Units: map[string]*nixeval.NixError{n.Unit: err}}
			}
			return n, nil
		}
	}
	return nixeval.Node{}, failure.WithHint(newUsageError("there is no node %s in the hive", name), "nixbench eval lists the nodes")
}

// buildSSHArgv returns OpenSSH's command line for a target. known is the file with the host keys of
// the machines that nixbench has booted. For a target that is such a machine, ssh accepts only the
// key in this file.
func buildSSHArgv(t remote.Target, known string, acceptNew bool, command []string) []string {
	argv := []string{"ssh"}
	if t.User != nil {
		argv = append(argv, "-l", *t.User)
	}
	if t.Port != nil {
		argv = append(argv, "-p", strconv.Itoa(*t.Port))
	}
	if len(t.HostKeys) > 0 {
		for _, file := range t.IdentityFiles {
			argv = append(argv, "-i", file)
		}
		for _, o := range []string{
			"IdentitiesOnly=yes", "StrictHostKeyChecking=yes", "HostKeyAlias=" + t.Name,
			"UserKnownHostsFile=" + quoteForSSH(known), "GlobalKnownHostsFile=none",
		} {
			argv = append(argv, "-o", o)
		}
		if v := t.Via; v != nil {
			argv = append(argv, "-J", formatJumpHost(*v))
		}
	} else if acceptNew {
		argv = append(argv, "-o", "StrictHostKeyChecking=accept-new")
	}
	argv = append(argv, t.SSHOptions...)
	return append(append(argv, "--", t.Host), command...)
}

// quoteForSSH quotes a file name for ssh's configuration, which splits values at spaces and expands
// %.
func quoteForSSH(file string) string {
	return `"` + strings.ReplaceAll(file, "%", "%%") + `"`
}

// formatJumpHost formats a jump host for ssh's option -J: `user@host:port`.
func formatJumpHost(t remote.Target) string {
	text := t.Host
	if strings.Contains(text, ":") {
		text = "[" + text + "]"
	}
	if t.User != nil {
		text = *t.User + "@" + text
	}
	if t.Port != nil {
		text += ":" + strconv.Itoa(*t.Port)
	}
	return text
}
