package sshconfig

import (
	"net"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"
)

// Target describes how to reach a node. It comes from the hive or from the record of a booted
// machine. Resolve returns the Config of a target.
type Target struct {
	Name string // the node, for messages
	Host string // name or address of the host, or a Host alias of the user's OpenSSH configuration

	// Fallbacks are other hosts of the same node. They are tried in order if the login at Host fails.
	Fallbacks []string

	Port *int    // nil: from OpenSSH's configuration, otherwise 22
	User *string // nil: from OpenSSH's configuration, otherwise the local user

	// SSHOptions are words of an ssh command line ("-o", "Foo=bar", "-i",
	// "key", …), from deployment.sshOptions.
	SSHOptions []string

	// IdentityFiles are additional private keys, tried before the user's.
	IdentityFiles []string

	// HostKeys pins the host's keys ("ssh-ed25519 AAAA…"). If it is not empty, no other key is
	// accepted, and known_hosts files are not read.
	HostKeys []string

	// Escalation is the command that runs another command as root, such as "sudo -H --". It is used if the login user is not root.
	Escalation []string

	// Jump is the jump host, as [user@]host[:port]. It replaces the setting ProxyJump of the user's OpenSSH configuration.
	Jump string
}

// isComplete reports whether the target can be used without the user's OpenSSH configuration. The
// targets of machines that nixbench has booted are complete.
func (t Target) isComplete() bool {
	return len(t.HostKeys) > 0 && len(t.IdentityFiles) > 0 && t.User != nil && len(t.SSHOptions) == 0
}

// Config describes how to connect to one host. It is the input of Dial.
type Config struct {
	Node     string // for messages
	Local    bool   // whether the node is this machine; if it is, only User and Escalation of the other fields are used
	Alias    string // the requested host
	HostName string // the name or address to connect to
	Port     int
	User     string
	Network  string // tcp, tcp4 or tcp6

	IdentityFiles    []string
	CertificateFiles []string
	IdentityAgent    string // the agent's socket; "" for none
	IdentitiesOnly   bool   // whether keys of the agent are offered only if IdentityFiles contains them

	HostKeys         []ssh.PublicKey // pinned keys; if there are any, only these keys are accepted
	KnownHosts       []string        // known_hosts files; a key that is accepted for the first time is added to the first file
	GlobalKnownHosts []string
	HostKeyAlias     string // the host's name in known_hosts files; "": HostName and Port
	HashKnownHosts   bool   // whether the host's name is hashed in new entries of known_hosts
	AcceptNew        bool   // the user's configuration accepts unknown host keys

	Jump         []string // arguments of ssh that name the jump host; nil: none. ssh -W makes the connection through this host
	ProxyCommand string   // command line for sh; the stdin and stdout of the program are the connection

	Escalation []string

	Fallbacks []Config // see [Target]; a fallback has no Fallbacks of its own

	ConnectTimeout    time.Duration // time limit of connecting and logging in; 0: 15 s, or 5 s if the node has another host to try
	KeepAliveInterval time.Duration // time between two keepalives (ServerAliveInterval); 0: 15 s
	KeepAliveMax      int           // number of keepalives without an answer after which the connection is closed; 0: 3
}

// Addr returns host:port.
func (c Config) Addr() string {
	if c.Local {
		return "this machine"
	}
	return net.JoinHostPort(c.HostName, strconv.Itoa(c.Port))
}

// KnownHostsName returns the host's name in known_hosts files, as host:port. Like OpenSSH, it
// replaces the port by 22 if there is a HostKeyAlias.
func (c Config) KnownHostsName() string {
	if c.HostKeyAlias != "" {
		return net.JoinHostPort(c.HostKeyAlias, "22")
	}
	return net.JoinHostPort(c.HostName, strconv.Itoa(c.Port))
}
