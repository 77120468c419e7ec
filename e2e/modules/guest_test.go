package modules

import (
	"path"
	"strings"
	"testing"
)

// networkFile is a file of networkd.
type networkFile struct {
	Name, Match, Type, Identifier string
}

// matches reports whether the file is for an Ethernet interface.
func (f networkFile) matches(name string) bool {
	for pattern := range strings.FieldsSeq(f.Match) {
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return f.Type == "ether"
}

// networkd uses the first file that matches: that of a user or of an option of NixOS, but not NixOS' default for all
// interfaces, with which a machine would not get its reserved address.
func TestNetworkFile(t *testing.T) {
	withEachNixpkgs(t, func(t *testing.T, nixpkgs string) {
		var files map[string][]networkFile
		evaluate(t, nixpkgs, "networks", &files)
		for name, want := range map[string]string{
			"plain":     "70-nixbench",
			"user":      "30-lan",
			"interface": "40-eth0",
			"useDHCP":   "70-nixbench",
		} {
			used, other := "", ""
			for _, f := range files[name] { // in the order of their names
				if used == "" && f.matches("eth0") {
					used = f.Name
				}
				if other == "" && f.matches("enp1s0") {
					other = f.Name
				}
				if f.Name == "70-nixbench" && f.Identifier != "mac" {
					t.Errorf("%s: the file has the client identifier %q", name, f.Identifier)
				}
			}
			if used != want {
				t.Errorf("%s: eth0 has the file %q of %v, want %s", name, used, files[name], want)
			}
			if other != "70-nixbench" {
				t.Errorf("%s: enp1s0 has the file %q of %v, want 70-nixbench", name, other, files[name])
			}
		}
		if all := files["useDHCP"]; len(all) == 0 || !strings.HasPrefix(all[len(all)-1].Name, "99-") {
			t.Errorf("with useDHCP there is no file of NixOS for all interfaces, so the order is not tested: %v", all)
		}
	})
}

// Other modules disable GRUB with mkDefault.
func TestGRUB(t *testing.T) {
	withEachNixpkgs(t, func(t *testing.T, nixpkgs string) {
		for name, want := range map[string]bool{"plain": true, "uefi": false, "systemdBoot": false, "profile": false, "user": true} {
			var got struct{ Enable bool }
			if evaluate(t, nixpkgs, "grub."+name, &got); got.Enable != want {
				t.Errorf("%s: grub.enable is %v, want %v", name, got.Enable, want)
			}
		}
	})
}

// A hive may set the features of Nix to a string or to a list. The modules' own are added.
func TestNixFeatures(t *testing.T) {
	const own = "[nix-command flakes]"
	withEachNixpkgs(t, func(t *testing.T, nixpkgs string) {
		for name, want := range map[string][2]string{
			"plain":  {"<nil>", own},
			"string": {"nix-command ca-derivations", own},
			"list":   {"[ca-derivations]", own},
			"none":   {"<nil>", "[]"},
		} {
			var got struct{ Plain, Extra any }
			evaluate(t, nixpkgs, "features."+name, &got)
			if plain, extra := show(got.Plain), show(got.Extra); plain != want[0] || extra != want[1] {
				t.Errorf("%s: experimental-features is %s and extra-experimental-features is %s, want %v", name, plain, extra, want)
			}
		}
	})
}
