package remote

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// Target describes how to reach a node, as the hive or the record of a booted machine
// contains it. Resolve makes a Config from it.
type Target struct {
	Name string  // the node, for messages
	Host string  // a name, an address, or a Host alias of the user's OpenSSH configuration
	Port *int    // nil: from OpenSSH's configuration, otherwise 22
	User *string // nil: from OpenSSH's configuration, otherwise the local user

	// SSHOptions are words of an ssh command line ("-o", "Foo=bar", "-i",
	// "key", …), as deployment.sshOptions has them.
	SSHOptions []string

	// IdentityFiles are additional private keys, tried before the user's.
	IdentityFiles []string

	// HostKeys pins the host's keys ("ssh-ed25519 AAAA…"). Nothing else is
	// accepted then, whatever known_hosts files say.
	HostKeys []string

	// Escalation is put in front of a command that needs root when the user
	// isn't root: sudo -H --.
	Escalation []string

	// Via is the host to jump through. It takes the place of a ProxyJump of
	// the user's configuration.
	Via *Target
}

// pinned reports whether the target is complete, so that the user's OpenSSH configuration is
// not needed. This is so for machines that nixbench has booted.
func (t Target) pinned() bool {
	return len(t.HostKeys) > 0 && len(t.IdentityFiles) > 0 && t.User != nil && len(t.SSHOptions) == 0
}

// Config is everything Dial needs to know about one host.
type Config struct {
	Node     string // for messages
	Alias    string // the requested host
	HostName string // the name or address to connect to
	Port     int
	User     string
	Network  string // tcp, tcp4 or tcp6

	IdentityFiles    []string
	CertificateFiles []string
	IdentityAgent    string // the agent's socket; "" for none
	IdentitiesOnly   bool   // offer only the agent's keys that IdentityFiles name

	HostKeys         []ssh.PublicKey // pinned: only these are accepted
	KnownHosts       []string        // the first one takes newly accepted keys
	GlobalKnownHosts []string
	HostKeyAlias     string // the name to look for in known_hosts files
	HashKnownHosts   bool   // write new entries hashed
	AcceptNew        bool   // the user's configuration accepts unknown host keys
	HostKeyAlgos     []string

	Via          *Config // the host to jump through
	ProxyCommand string  // run by sh, its stdin and stdout are the connection

	Escalation []string

	ConnectTimeout    time.Duration // 0: Options decide
	KeepAliveInterval time.Duration // 0: Options decide
	KeepAliveMax      int           // 0: Options decide

	// Warnings are unsupported settings of the user's configuration that may matter.
	Warnings []string
}

// Addr is host:port.
func (c Config) Addr() string {
	return net.JoinHostPort(c.HostName, strconv.Itoa(c.Port))
}

// knownAs is the host's name in known_hosts files. As with OpenSSH, an alias is used without
// the port.
func (c Config) knownAs() string {
	if c.HostKeyAlias != "" {
		return net.JoinHostPort(c.HostKeyAlias, "22")
	}
	return net.JoinHostPort(c.HostName, strconv.Itoa(c.Port))
}

// Runner runs a local program and returns its stdout. Its error carries the
// program's stderr.
type Runner func(ctx context.Context, argv ...string) ([]byte, error)

// Prompt asks the user for a secret. The caller owns what it returns.
type Prompt func(ctx context.Context, question string) ([]byte, error)

// plainUser is plainWord for a user name, which may have single backslashes inside, as in `CORP\alice`.
func plainUser(s string) bool {
	return plainWord(strings.ReplaceAll(s, `\`, "")) && !strings.HasSuffix(s, `\`) && !strings.Contains(s, `\\`)
}

// plainWord reports whether s can go into an ssh or proxy command line as it
// is. OpenSSH refuses the same characters in host and user names.
func plainWord(s string) bool {
	if s == "" || s[0] == '-' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune("'\"`$\\;&<>|(){}*?!#~", r)
	})
}
