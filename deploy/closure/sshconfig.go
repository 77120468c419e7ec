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

// writeSSHConfig writes an OpenSSH configuration for a host, since `nix copy --to ssh-ng://` runs ssh.
// It returns the host's alias in that file, and the value of NIX_SSHOPTS. The settings are in a file,
// because options in the variable cannot contain blanks. ssh does not read the user's configuration,
// whose settings are already in cfg.
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

// writeHost writes the Host block of a host, and those of its jump hosts. It returns an error for a
// value that an ssh configuration cannot contain.
func writeHost(b *strings.Builder, dir, alias string, cfg remote.Config) error {
	var invalid error
	add := func(key string, values ...string) {
		for i, v := range values {
			if strings.ContainsAny(v, "\"\n\\") {
				invalid = errors.Join(invalid, fmt.Errorf("an ssh configuration cannot contain %s %q", key, v))
			}
			if strings.ContainsAny(v, " \t#") {
				values[i] = `"` + v + `"`
			}
		}
		fmt.Fprintf(b, "  %s %s\n", key, strings.Join(values, " "))
	}
	yesNo := map[bool]string{true: "yes", false: "no"}

	fmt.Fprintf(b, "Host %s\n", alias)
	add("HostName", escapeTokens(cfg.HostName)...)
	add("Port", fmt.Sprint(cfg.Port))
	if family := map[string]string{"tcp4": "inet", "tcp6": "inet6"}[cfg.Network]; family != "" {
		add("AddressFamily", family)
	}
	fmt.Fprintf(b, "  User %s\n", cfg.User) // without quotes: package remote has validated the user, and a backslash in it needs none
	add("BatchMode", "yes")                 // an error instead of a question, because ssh must not ask on nixbench's terminal
	add("StrictHostKeyChecking", "yes")
	add("ControlPath", "none")
	for _, f := range orNone(cfg.IdentityFiles) {
		add("IdentityFile", escapeTokens(f)...)
	}
	for _, f := range cfg.CertificateFiles {
		add("CertificateFile", escapeTokens(f)...)
	}
	add("IdentityAgent", escapeTokens(orNone([]string{cfg.IdentityAgent})[0])...)
	add("IdentitiesOnly", yesNo[cfg.IdentitiesOnly])
	if len(cfg.HostKeyAlgos) > 0 {
		add("HostKeyAlgorithms", strings.Join(cfg.HostKeyAlgos, ","))
	}
	if cfg.ConnectTimeout > 0 {
		add("ConnectTimeout", fmt.Sprint(max(1, int(cfg.ConnectTimeout.Seconds()))))
	}
	add("ServerAliveInterval", "15") // as for nixbench's own connection
	if len(cfg.HostKeys) > 0 {
		known, err := writePinned(dir, alias, cfg.HostKeys)
		if err != nil {
			return err
		}
		add("HostKeyAlias", alias)
		add("UserKnownHostsFile", known)
		add("GlobalKnownHostsFile", "none")
	} else {
		if cfg.HostKeyAlias != "" {
			add("HostKeyAlias", cfg.HostKeyAlias)
		}
		add("UserKnownHostsFile", escapeTokens(orNone(cfg.KnownHosts)...)...)
		add("GlobalKnownHostsFile", orNone(cfg.GlobalKnownHosts)...)
	}
	switch {
	case cfg.Via != nil:
		add("ProxyJump", alias+"-via")
	case cfg.ProxyCommand != "":
		if strings.ContainsRune(cfg.ProxyCommand, '\n') {
			invalid = errors.Join(invalid, errors.New("an ssh configuration cannot contain a ProxyCommand of several lines"))
		}
		fmt.Fprintf(b, "  ProxyCommand %s\n", escapeTokens(cfg.ProxyCommand)[0])
	}
	if invalid != nil || cfg.Via == nil {
		return invalid
	}
	return writeHost(b, dir, alias+"-via", *cfg.Via)
}

// escapeTokens escapes % signs, so that ssh does not expand values that package remote has expanded.
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

// writePinned writes a known_hosts file with the pinned keys of the alias, and returns its path.
func writePinned(dir, alias string, keys []ssh.PublicKey) (string, error) {
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(alias + " " + string(ssh.MarshalAuthorizedKey(k)))
	}
	file := filepath.Join(dir, alias+".known_hosts")
	return file, os.WriteFile(file, []byte(b.String()), 0o600)
}
