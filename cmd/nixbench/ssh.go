package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

func sshCommand(a *app) *cobra.Command {
	var acceptNew bool
	cmd := &cobra.Command{
		Use:   "ssh NODE [-- COMMAND…]",
		Short: "Log in to a node",
		Long: `Log in to a node with OpenSSH and the hive's deployment.targetHost, targetUser,
targetPort and sshOptions. The arguments after -- are the remote command, as for
ssh. The exit code is that of ssh: the command's, or 255.`,
		Example: `  nixbench ssh web-1 -- journalctl -fu nginx`,
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if a.json {
			return failure.NewUsage("ssh: --json is not supported; use nixbench exec --json to run a command")
		}
		name, command := args[0], args[1:]
		if len(command) > 0 && command[0] == "--" {
			command = command[1:]
		}
		return a.inSession(fleetFlags{acceptNew: acceptNew}, onNode(name), func(s *deploy.Session) error {
			target, err := s.Fleet.AnsweringTarget(a.ctx, s.Nodes[0])
			if err != nil {
				return err
			}
			program, err := exec.LookPath("ssh")
			if err != nil {
				return failure.WithHint(fmt.Errorf("%s: %w", name, err), "install OpenSSH's client")
			}
			argv := buildSSHArgv(target, s.Dir.KnownHosts(), acceptNew, command)
			if err := a.view.Close(); err != nil {
				return err
			}
			if err := syscall.Exec(program, argv, os.Environ()); err != nil {
				return fmt.Errorf("%s: %s: %w", name, program, err)
			}
			return nil
		})
	})
	f := cmd.Flags()
	f.SetInterspersed(false) // leave flags after the node's name to the remote command
	f.BoolVar(&acceptNew, "accept-new-host-keys", false, "accept and store the key of a host that known_hosts does not contain")
	return cmd
}

// buildSSHArgv returns the command line of OpenSSH for a target. known is the file with the host keys of machines that nixbench
// has booted: if the target is one of these machines, ssh accepts only the host key in this file. The name of the file is quoted,
// because ssh splits values at spaces and expands %.
func buildSSHArgv(t sshconfig.Target, known string, acceptNew bool, command []string) []string {
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
			`UserKnownHostsFile="` + strings.ReplaceAll(known, "%", "%%") + `"`, "GlobalKnownHostsFile=none",
		} {
			argv = append(argv, "-o", o)
		}
		if t.Jump != "" {
			argv = append(argv, "-J", t.Jump)
		}
	} else if acceptNew {
		argv = append(argv, "-o", "StrictHostKeyChecking=accept-new")
	}
	argv = append(argv, t.SSHOptions...)
	return append(append(argv, "--", t.Host), command...)
}
