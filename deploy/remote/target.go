package remote

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// Target is what was asked for: how the hive, or the machine that we booted,
// says its node is reached. Resolve makes a Config of it.
type Target struct {
	Name string  // the node, for messages
	Host string  // a name, an address, or a Host alias of the user's OpenSSH configuration
	Port *int    // nil: what OpenSSH's configuration says, else 22
	User *string // nil: what OpenSSH's configuration says, else the local user

	// SSHOptions are words of an ssh command line ("-o", "Foo=bar", "-i",
	// "key", …), as deployment.sshOptions has them.
	SSHOptions []string

	// IdentityFiles are private keys of ours, tried before the user's.
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

// pinned reports whether the target says everything itself, so that the
// user's OpenSSH configuration has nothing to add: a machine that we booted.
func (t Target) pinned() bool {
	return len(t.HostKeys) > 0 && len(t.IdentityFiles) > 0 && t.User != nil && len(t.SSHOptions) == 0
}

// Config is everything Dial needs to know about one host.
type Config struct {
	Node     string // for messages
	Alias    string // the host as it was asked for
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

	// Warnings are settings of the user's configuration that are not followed
	// and that he may miss.
	Warnings []string
}

// Addr is host:port.
func (c Config) Addr() string {
	return net.JoinHostPort(c.HostName, strconv.Itoa(c.Port))
}

// knownAs is the name that known_hosts files are asked for. As with OpenSSH,
// an alias stands for the host whatever its port.
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
