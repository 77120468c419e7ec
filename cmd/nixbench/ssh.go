package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

const sshLong = `Log in to a node with OpenSSH, as the hive says: deployment.targetHost,
targetUser, targetPort and sshOptions, and for everything else your OpenSSH
configuration.

What follows -- is the remote command, with ssh's own meaning: its words are
joined with spaces and read by the node's shell. nixbench exec runs a program
with exact arguments, and on many nodes.

nixbench turns into ssh, so the exit code is ssh's: the command's, or 255.`

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
	cmd.RunE = a.runs(func(args []string) error {
		if a.json {
			return usagef("ssh: a login cannot be shown as JSON; nixbench exec --json can run a command")
		}
		command := args[1:]
		if len(command) > 0 && command[0] == "--" {
			command = command[1:]
		}
		return a.ssh(args[0], command, acceptNew)
	})
	f := cmd.Flags()
	f.SetInterspersed(false) // flags after the node are the command's
	f.BoolVar(&acceptNew, "accept-new-host-keys", false, "trust the host key of a host that known_hosts does not know, and remember it")
	return cmd
}

func (a *app) ssh(name string, command []string, acceptNew bool) error {
	e, err := a.evaluator()
	if err != nil {
		return err
	}
	hive, err := a.survey(e)
	if err != nil {
		return err
	}
	node, err := nodeNamed(hive, name)
	if err != nil {
		return err
	}
	fleet := a.fleet(hive, fleetFlags{})
	defer fleet.Close()
	target, err := fleet.Target(node)
	if err != nil {
		return err
	}
	program, err := exec.LookPath("ssh")
	if err != nil {
		return &hinted{fmt.Errorf("%s: %w", name, err), "install OpenSSH's client"}
	}
	argv := sshArgv(target, a.dir.KnownHosts(), acceptNew, command)
	if err := a.view.Close(); err != nil {
		return err
	}
	if err := syscall.Exec(program, argv, os.Environ()); err != nil {
		return fmt.Errorf("%s: %s: %w", name, program, err)
	}
	return nil
}

// nodeNamed gives the node of exactly that name.
func nodeNamed(hive *nixeval.Hive, name string) (nixeval.Node, error) {
	for _, n := range hive.Nodes {
		if n.Name == name {
			if err := hive.Broken[n.Unit]; err != nil {
				return n, &nixeval.EvalError{Units: map[string]*nixeval.NixError{n.Unit: err}}
			}
			return n, nil
		}
	}
	return nixeval.Node{}, &hinted{usagef("there is no node %s in the hive", name), "nixbench eval lists the nodes"}
}

// sshArgv is the command line of OpenSSH for a target. known is the file with the keys
// of machines that we have booted: of them no other key is accepted.
func sshArgv(t remote.Target, known string, acceptNew bool, command []string) []string {
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
			"UserKnownHostsFile=" + sshQuote(known), "GlobalKnownHostsFile=none",
		} {
			argv = append(argv, "-o", o)
		}
		if v := t.Via; v != nil {
			argv = append(argv, "-J", jumpText(*v))
		}
	} else if acceptNew {
		argv = append(argv, "-o", "StrictHostKeyChecking=accept-new")
	}
	argv = append(argv, t.SSHOptions...)
	return append(append(argv, "--", t.Host), command...)
}

// sshQuote is a file name as ssh's configuration takes it, which splits at blanks and expands %.
func sshQuote(file string) string {
	return `"` + strings.ReplaceAll(file, "%", "%%") + `"`
}

// jumpText is a host to jump through as ssh's -J takes it.
func jumpText(t remote.Target) string {
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
