// Package remote is nixbench's way to a node: one SSH connection, over which
// everything goes, and which feels like os/exec.
//
// It takes three steps. A Target is what was asked for; Resolve makes a Config
// of it, with what the user's OpenSSH configuration says; a Host dials when it
// is first needed, and again when a connection is gone:
//
//	cfg, err := remote.Resolve(ctx, remote.Target{Name: "web-1", Host: "web-1.example"})
//	host := remote.NewHost(cfg, remote.Options{Prompt: ask})
//	defer host.Close()
//	conn, err := host.Conn(ctx)
//	out, err := conn.Output(ctx, remote.Cmd{Argv: []string{"nixos-version"}})
//	err = conn.Run(ctx, remote.Cmd{Argv: []string{"tee", "/etc/motd"}, Stdin: text, Sudo: true})
//	socket, err := conn.ForwardUnix(ctx, dir+"/nix.sock", "/nix/var/nix/daemon-socket/socket")
//
// # Trust
//
// A machine that we booted has its host key pinned, since we made that key. For
// every other host, known_hosts files decide as with ssh, hashed names, ports
// and certificate authorities included. An unknown key is refused, unless
// Options.AcceptNewHostKeys or the user's own StrictHostKeyChecking say
// otherwise, and a changed key is refused always: "StrictHostKeyChecking no"
// is read as accept-new. Nobody is asked a yes-or-no question about a key.
//
// Options.KnownHosts keeps these files for other nodes, as they are: one that has
// changed is read again.
//
// Logging in takes keys: from an agent, from files, with certificates. A
// passphrase is asked for when a server wants that very key, and once per
// Keyring. Passwords and GSSAPI are not supported, and Resolve says so where a
// configuration allows nothing else. Settings that matter less but are not
// followed end up in Config.Warnings.
//
// # Commands
//
// Argv is quoted, so that no argument is ever read by a shell. What a command
// needs to keep secret goes to its stdin: argv and environment can be read by
// every user of the node.
//
// Each command announces its process id on stderr before it starts, with a
// mark that is taken out of the stream again. That serves two purposes. sshd
// leaves a command running when its session is closed, and takes no signals
// for root; so a cancelled command is ended by its process group, over a
// session of its own. And with sudo in front, the announcement is the proof
// that sudo has let the command through: only then does it get its stdin, so
// that a password and the payload never mix, and a refusal by sudo is never
// mistaken for a failure of the command.
//
// sudo's password is asked for once per Host, kept in memory, and written to
// sudo's stdin after its prompt, which is made unique for each command. Without
// anybody to ask, sudo is told not to ask. Sudoers must allow any command, not
// only some. Other escalation commands are used as they are.
//
// # When things go wrong
//
// Everything ends in bounded time. Connecting and logging in take at most
// Options.Timeout; a connection whose server is silent is closed after three
// missed keepalives; each call ends with its context. The errors tell apart
// what calls for different remedies, and name node, address and remedy:
//
//	UnreachableError        nobody answers, or not with SSH: waiting may help
//	HostKeyUnknownError     accept the key, or don't
//	HostKeyChangedError     another machine, or a reinstalled one
//	AuthError               none of our keys is let in; says which were tried
//	EscalationError         logged in, but cannot become root: nothing was run
//	RunError                the command failed: exit status, signal, tail of stderr
//	LostError               the connection broke: the command may still run
//	ErrForwardingProhibited the server forbids what nix copy needs
//
// # Tests
//
// Package sshtest has a server for tests of this and other packages. It passes
// the same contract suite as OpenSSH's sshd (TestContract).
package remote
