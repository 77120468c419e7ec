package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Computer checks this computer: Nix, the Nix store and OpenSSH's client.
func Computer(ctx context.Context) []provider.Finding {
	return []provider.Finding{checkNixVersion(ctx), checkNixTrust(ctx), checkSSHClient()}
}

// NixVersion returns what nix --version prints, such as "nix (Nix) 2.26.3".
func NixVersion(ctx context.Context) (string, error) { return runCommand(ctx, "nix", "--version") }

// checkNixVersion checks the version of Nix. A version before 2.8 is an error, a version before 2.18 a warning.
func checkNixVersion(ctx context.Context) provider.Finding {
	text, err := NixVersion(ctx)
	f := provider.Finding{What: "nix", State: provider.FindingError, Text: text, Fix: "install Nix 2.18 or later, see https://nixos.org/download"}
	var major, minor int
	if err == nil {
		_, _ = fmt.Sscanf(text[strings.LastIndex(text, " ")+1:], "%d.%d", &major, &minor) // an unknown version is 0.0
	}
	switch version := major*1000 + minor; {
	case err != nil:
		f.Text = err.Error()
	case version >= 2018:
		f.State, f.Fix = provider.FindingOK, ""
	case version >= 2008:
		f.State, f.Text = provider.FindingWarning, text+" is older than the oldest version that nixbench supports"
	}
	return f
}

// checkNixTrust checks whether the Nix store can be reached and whether its daemon trusts the user.
func checkNixTrust(ctx context.Context) provider.Finding {
	ping := []string{"nix", "--extra-experimental-features", "nix-command", "store", "ping"}
	text, err := runCommand(ctx, append(ping, "--json")...)
	if err != nil { // older versions have no --json
		if _, err = runCommand(ctx, ping...); err == nil {
			return provider.Finding{What: "nix store", State: provider.FindingOK, Text: "it can be reached"}
		}
	}
	switch {
	case err != nil:
		return provider.Finding{What: "nix store", State: provider.FindingError, Text: err.Error(), Fix: "is nix-daemon running? systemctl start nix-daemon"}
	case strings.Contains(text, `"trusted":0`), strings.Contains(text, `"trusted":false`):
		return provider.Finding{What: "nix store", State: provider.FindingWarning, Text: "its daemon does not trust this user",
			Fix: "this is enough to build and copy; for --nix-option and unsigned caches, add the user to trusted-users in /etc/nix/nix.conf"}
	}
	return provider.Finding{What: "nix store", State: provider.FindingOK, Text: "it can be reached, and trusts this user"}
}

// checkSSHClient checks whether OpenSSH's client is installed. `nixbench ssh` needs the client. nixbench also needs it for every
// node with a deployment.targetHost, because it reads the node's connection options from `ssh -G`.
func checkSSHClient() provider.Finding {
	if path, err := exec.LookPath("ssh"); err == nil {
		return provider.Finding{What: "ssh", State: provider.FindingOK, Text: path}
	}
	return provider.Finding{What: "ssh", State: provider.FindingWarning, Text: "ssh is not installed", Fix: "install OpenSSH's client; without it nodes with a deployment.targetHost cannot be reached"}
}

// runCommand runs a command on this computer for at most 20 seconds, and returns its output. An error contains what the command
// has printed to stderr.
func runCommand(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = 300 * time.Millisecond
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) && len(bytes.TrimSpace(failed.Stderr)) > 0 {
		err = fmt.Errorf("%s: %s", argv[0], bytes.TrimSpace(failed.Stderr))
	}
	return strings.TrimSpace(string(out)), err
}
