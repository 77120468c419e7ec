// Package remote runs commands on a node over one SSH connection, or on this machine, with an API like
// os/exec. A Host connects when a connection is first needed, and again after a connection was lost:
//
//	cfg, err := sshconfig.Resolve(ctx, sshconfig.Target{Name: "web-1", Host: "web-1.example"})
//	host := remote.NewHost(cfg, remote.Options{Prompt: ask})
//	defer host.Close()
//	conn, err := host.Conn(ctx)
//	err = conn.Run(ctx, remote.Cmd{Argv: []string{"tee", "/etc/motd"}, Stdin: text, Sudo: true})
//
// Each command prints a mark with its process id before it starts, see package shell; the client removes the mark from the output.
// With the process id, the processes of a cancelled command are ended over another session.
//
// Every call ends in bounded time, or when its context ends. A connection whose server is silent is closed after
// three missed keepalives, or earlier if Options.Down reports that the node's machine does not run. Each error type
// corresponds to one action of the user.
package remote
