package closure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/remote"
)

// sshConfig writes an OpenSSH configuration for a host, since `nix copy --to ssh-ng://` runs ssh. It
// returns the host's alias in that file, and the value of NIX_SSHOPTS. It is a file, because the
// variable cannot contain blanks. The user's own configuration is not read by ssh, because Config
// already contains it.
func writeSSHConfig(dir string, cfg remote.Config) (alias, opts string, err error) {
	var b strings.Builder
	alias = "node"
	if plainNameRE.MatchString(cfg.Node) {
		alias = cfg.Node // for the messages of ssh and Nix
	}
	if err := writeHost(&b, dir, alias, cfg); err != nil {
		return "", "", err
	}
	file := filepath.Join(dir, "ssh_config")
	return alias, "-F " + file, os.WriteFile(file, []byte(b.String()), 0o600)
}

var plainNameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*$`)

func writeHost(b *strings.Builder, dir, alias string, cfg remote.Config) error {
	var bad error
	say := func(key string, values ...string) {
		for i, v := range values {
			if strings.ContainsAny(v, "\"\n\\") {
				bad = errors.Join(bad, fmt.Errorf("an ssh configuration cannot contain %s %q", key, v))
			}
			if strings.ContainsAny(v, " \t#") {
				values[i] = `"` + v + `"`
			}
		}
		fmt.Fprintf(b, "  %s %s\n", key, strings.Join(values, " "))
	}
	yesNo := map[bool]string{true: "yes", false: "no"}

	fmt.Fprintf(b, "Host %s\n", alias)
	say("HostName", escapeTokens(cfg.HostName)...)
	say("Port", fmt.Sprint(cfg.Port))
	if family := map[string]string{"tcp4": "inet", "tcp6": "inet6"}[cfg.Network]; family != "" {
		say("AddressFamily", family)
	}
	fmt.Fprintf(b, "  User %s\n", cfg.User) // package remote has checked it; it may contain a backslash
	say("BatchMode", "yes")                 // ssh must not ask questions on nixbench's terminal
	say("StrictHostKeyChecking", "yes")
	say("ControlPath", "none")
	for _, f := range orNone(cfg.IdentityFiles) {
		say("IdentityFile", escapeTokens(f)...)
	}
	for _, f := range cfg.CertificateFiles {
		say("CertificateFile", escapeTokens(f)...)
	}
	say("IdentityAgent", escapeTokens(orNone([]string{cfg.IdentityAgent})[0])...)
	say("IdentitiesOnly", yesNo[cfg.IdentitiesOnly])
	if len(cfg.HostKeyAlgos) > 0 {
		say("HostKeyAlgorithms", strings.Join(cfg.HostKeyAlgos, ","))
	}
	if cfg.ConnectTimeout > 0 {
		say("ConnectTimeout", fmt.Sprint(max(1, int(cfg.ConnectTimeout.Seconds()))))
	}
	say("ServerAliveInterval", "15") // as for nixbench's own connection
	if len(cfg.HostKeys) > 0 {
		known, err := writePinned(dir, alias, cfg.HostKeys)
		if err != nil {
			return err
		}
		say("HostKeyAlias", alias)
		say("UserKnownHostsFile", known)
		say("GlobalKnownHostsFile", "none")
	} else {
		if cfg.HostKeyAlias != "" {
			say("HostKeyAlias", cfg.HostKeyAlias)
		}
		say("UserKnownHostsFile", escapeTokens(orNone(cfg.KnownHosts)...)...)
		say("GlobalKnownHostsFile", orNone(cfg.GlobalKnownHosts)...)
	}
	switch {
	case cfg.Via != nil:
		say("ProxyJump", alias+"-via")
	case cfg.ProxyCommand != "":
		if strings.ContainsRune(cfg.ProxyCommand, '\n') {
			bad = errors.Join(bad, errors.New("an ssh configuration cannot contain a ProxyCommand of several lines"))
		}
		fmt.Fprintf(b, "  ProxyCommand %s\n", escapeTokens(cfg.ProxyCommand)[0])
	}
	if bad != nil || cfg.Via == nil {
		return bad
	}
	return writeHost(b, dir, alias+"-via", *cfg.Via)
}

// noTokens escapes % signs, so that ssh does not expand values that remote has expanded.
func escapeTokens(values ...string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = strings.ReplaceAll(v, "%", "%%")
	}
	return out
}

func orNone(values []string) []string {
	if len(values) == 0 || values[0] == "" {
		return []string{"none"}
	}
	return values
}

// writePinned writes a known_hosts file with the pinned keys of the alias.
func writePinned(dir, alias string, keys []ssh.PublicKey) (string, error) {
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(alias + " " + string(ssh.MarshalAuthorizedKey(k)))
	}
	file := filepath.Join(dir, alias+".known_hosts")
	return file, os.WriteFile(file, []byte(b.String()), 0o600)
}
