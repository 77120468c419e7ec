package deployments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// hive describes what hive.nix contains.
type hive struct {
	fresh      int  // number of the nixpkgs, from which every store path of the systems depends
	line       int  // content of /etc/which
	keys       int  // number of keys of each node
	keySet     int  // part of the name of each key
	keyVersion int  // part of the content of each key
	large      bool // the systems contain the large path
}

// isLike reports whether a scenario that needs the keys of other may begin with h. The values of the counters do not
// matter, except that of the nixpkgs: scenarios begin with the first one.
func (h hive) isLike(other hive) bool {
	return h.fresh == other.fresh && h.keys == other.keys && h.large == other.large
}

func (h hive) lineText() string { return fmt.Sprintf("line %d", h.line) }

func (h hive) keyName(key int) string { return fmt.Sprintf("key-%d-%d", h.keySet, key) }

// keyText returns the content of the key on a node.
func (h hive) keyText(key int, node string) string {
	return fmt.Sprintf("content of key %d, version %d, on %s", key, h.keyVersion, node)
}

// write writes hive.nix and large.nix into dir.
func (h hive) write(dir, sshConfig, large string, nodes []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, `{
  meta.nixpkgs = import <nixpkgs> { };
  defaults = { name, lib, ... }: {
    deployment.sshOptions = [ "-F" %q ];
    networking.firewall.enable = lib.mkDefault false;
    networking.hostName = "";
    system.stateVersion = "25.05";
    nix.settings.trusted-users = [ "root" ];
    environment.etc."node".text = name; # each node has a system of its own
    environment.etc."which".text = %q;
`, sshConfig, h.lineText())
	for key := range h.keys {
		fmt.Fprintf(&b, "    deployment.keys.%q.text = %q;\n", h.keyName(key), h.keyText(key, "NODE"))
	}
	if h.large {
		b.WriteString("    environment.etc.\"large\".source = import ./large.nix;\n")
	}
	b.WriteString("  };\n")
	for _, node := range nodes {
		fmt.Fprintf(&b, "  %s = { };\n", node)
	}
	b.WriteString("}\n")
	text := strings.ReplaceAll(b.String(), "on NODE", "on ${name}")
	if err := os.WriteFile(filepath.Join(dir, "large.nix"), []byte(large), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "hive.nix"), []byte(text), 0o600)
}

// describeLarge returns the Nix expression of a path with random bytes. The salt makes it a new path.
func describeLarge(megabytes int, salt string) string {
	return fmt.Sprintf(`derivation {
  name = "bench-large";
  system = builtins.currentSystem;
  builder = "/bin/sh";
  args = [ "-c" "/usr/bin/head -c %d /dev/urandom >$out" ];
  salt = %q;
}
`, megabytes*1_000_000, salt)
}

// assembleNixpkgs assembles the mini NixOS in dir/nixpkgs-NUMBER, with a busybox that no other nixpkgs has. Since all
// builds use it, no store path of a system exists before. It returns the folder.
func assembleNixpkgs(dir, salt string, number int) (string, error) {
	target := filepath.Join(dir, fmt.Sprintf("nixpkgs-%d", number))
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	if err := fixture.Assemble(target); err != nil {
		return "", err
	}
	busybox, err := os.OpenFile(filepath.Join(target, "busybox/bin/busybox"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	// The kernel ignores bytes after the end of an ELF file.
	_, err = fmt.Fprintf(busybox, "\n%s %d\n", salt, number)
	return target, errors.Join(err, busybox.Close())
}
