package inspect

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
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
	f := provider.Finding{What: "nix", Fix: "install Nix 2.18 or later, see https://nixos.org/download"}
	text, err := NixVersion(ctx)
	if err != nil {
		f.State, f.Text = provider.FindingError, err.Error()
		return f
	}
	f.State, f.Text = provider.FindingOK, text
	fields := strings.Fields(text)
	var major, minor int
	if len(fields) > 0 {
		parts := strings.SplitN(fields[len(fields)-1], ".", 3)
		if len(parts) > 1 {
			major, _ = strconv.Atoi(parts[0])
			minor, _ = strconv.Atoi(parts[1])
		}
	}
	switch {
	case major < 2 || major == 2 && minor < 8:
		f.State = provider.FindingError
	case major == 2 && minor < 18:
		f.State, f.Text = provider.FindingWarning, text+" is older than the oldest version that nixbench supports"
	default:
		f.Fix = ""
	}
	return f
}

// checkNixTrust checks whether the Nix store can be reached and whether its daemon trusts the user.
func checkNixTrust(ctx context.Context) provider.Finding {
	f := provider.Finding{What: "nix store", State: provider.FindingOK}
	text, err := runCommand(ctx, "nix", "--extra-experimental-features", "nix-command", "store", "ping", "--json")
	switch {
	case err != nil:
		if _, err = runCommand(ctx, "nix", "--extra-experimental-features", "nix-command", "store", "ping"); err != nil { // older versions have no --json
			f.State, f.Text, f.Fix = provider.FindingError, err.Error(), "is nix-daemon running? systemctl start nix-daemon"
			return f
		}
		f.Text = "it can be reached"
	case strings.Contains(text, `"trusted":0`), strings.Contains(text, `"trusted":false`):
		f.State, f.Text = provider.FindingWarning, "its daemon does not trust this user"
		f.Fix = "this is enough to build and copy; for --nix-option and unsigned caches, add the user to trusted-users in /etc/nix/nix.conf"
	default:
		f.Text = "it can be reached, and trusts this user"
	}
	return f
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
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			return "", fmt.Errorf("%s: %s", argv[0], text)
		}
		return "", err
	}
	return strings.TrimSpace(stdout.String()), nil
}
