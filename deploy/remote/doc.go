// Package remote runs commands on a node over one SSH connection, or on this machine, with an API like
// os/exec.
//
// Package sshconfig determines how to connect to a node, with the user's OpenSSH configuration. A Host
// connects when a connection is first needed, and again after a connection was lost:
//
//	cfg, err := sshconfig.Resolve(ctx, sshconfig.Target{Name: "web-1", Host: "web-1.example"})
//	host := remote.NewHost(cfg, remote.Options{Prompt: ask})
//	defer host.Close()
//	conn, err := host.Conn(ctx)
//	out, err := conn.Output(ctx, remote.Cmd{Argv: []string{"nixos-version"}})
//	err = conn.Run(ctx, remote.Cmd{Argv: []string{"tee", "/etc/motd"}, Stdin: text, Sudo: true})
//	socket, err := conn.Dial(ctx, "unix", "/nix/var/nix/daemon-socket/socket")
//
// Package hostkeys checks the key that a host shows, and package identity loads the keys that a login offers.
//
// # Commands
//
// Argv is quoted, so that a shell never interprets an argument. Secrets must be passed
// on stdin: every user of the node can read argv.
//
// Each command prints a mark with its process id on stderr before it starts; the client removes the mark from the
// output. The mark serves two purposes. First, sshd does not end a command when its session is closed, and accepts no
// signals for root's commands. The process group of a cancelled command is therefore killed over another session.
// Second, the mark proves that sudo has started the command. The command's stdin is sent only after the mark, so that
// password and input are never mixed, and an error of sudo is never reported as a failure of the command itself.
//
// sudo's password is asked for once per Host, kept in memory, and written to sudo's stdin after sudo's prompt. The
// prompt is unique for each command. Without a Prompt, sudo is run in non-interactive mode. The sudoers file must allow
// all commands. Other escalation commands than sudo get no additional options.
//
// # Errors
//
// Every call ends in bounded time. Connecting and logging in take at most Options.Timeout. A connection whose server is silent is closed
// after three missed keepalives, or earlier if Options.Down reports that the node's machine does not run. Each call ends when its
// context ends. Each error type corresponds to one action of the user, and contains the node, its address and advice:
//
//	UnreachableError        no answer, or not from an SSH server: waiting may help
//	hostkeys.UnknownError   verify the key and accept it
//	hostkeys.ChangedError   another machine, or a reinstalled machine
//	AuthError               the server accepted no key; lists the tried keys
//	AllHostsError           a node has several hosts, and each has one of the above errors
//	EscalationError         logged in, but cannot become root: the command was not run
//	RunError                the command failed: exit status, signal, tail of stderr
//	LostError               the connection broke: the command may still run
//
// # Tests
//
// Package sshtest has an SSH server for tests of this and other packages. That server
// passes the same contract suite as OpenSSH's sshd (TestContract).
package remote
