package sshconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckPrograms(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	config := filepath.Join(t.TempDir(), "ssh_config")
	for _, c := range []struct {
		options []string
		config  string // contents of the file CONFIG
		want    string // in the error; "": none
	}{
		{options: []string{"-o", "Compression=yes", "-4oUser=x", "-J", "jump", "-i", "proxycommand", "-p22"}},
		{options: []string{"-o", "ProxyCommand=none", "-F", "none", "-F", "/nowhere"}},
		{options: []string{"-o", "ProxyCommand=nc %h"}, want: "ProxyCommand runs a program"},
		{options: []string{"-o", "proxycommand nc %h"}, want: "proxycommand runs"},
		{options: []string{"-PoProxyCommand=x"}, want: "-P oProxyCommand=x can run a program"},
		{options: []string{"-P", "-oProxyCommand=x"}, want: "-P -oProxyCommand=x can run a program"},
		{options: []string{"-i", "-oProxyCommand=x"}, want: "ProxyCommand runs"},
		{options: []string{"-vvToProxyCommand=x"}, want: "ProxyCommand runs"},
		{options: []string{"-A", "-T4o", ` "ProxyCommand"=x`}, want: "ProxyCommand runs"},
		{options: []string{"-o", "\nProxyCommand=x\n# y"}, want: "ProxyCommand runs"},
		{options: []string{"-o", `ProxyCommand="none"`}, want: "ProxyCommand runs"},
		{options: []string{"-p", "22", "--", "-oLocalCommand=x"}, want: "LocalCommand runs"},
		{options: []string{"-oKnownHostsCommand=x"}, want: "KnownHostsCommand runs"},
		{options: []string{"-oPKCS11Provider=/x.so"}, want: "PKCS11Provider runs"},
		{options: []string{"-o", "SecurityKeyProvider=/x.so"}, want: "SecurityKeyProvider runs"},
		{options: []string{"-I/x.so"}, want: "-I /x.so can run"},
		{options: []string{"-E", "/root/.profile"}, want: "-E /root/.profile can run"},
		{options: []string{"-F", "CONFIG"}, config: "# ProxyCommand x\nHost *\n  ProxyJump jump\nMatch host web\n User x\n"},
		{options: []string{"-F", "CONFIG"}, config: "Host *\n\tProxyCommand x\n", want: "ssh_config: ProxyCommand runs"},
		{options: []string{"-FCONFIG"}, config: "Host x\r\n\"ProxyCommand\"\tx\r\n", want: "ProxyCommand runs"},
		{options: []string{"-FCONFIG"}, config: "match host x EXEC \"x\"", want: "Match exec runs"},
		{options: []string{"-FCONFIG"}, config: "Include /x", want: "Include runs"},
		{options: []string{"-F", filepath.Join(home, ".ssh", "config")}},
	} {
		if err := os.WriteFile(config, []byte(c.config), 0o600); err != nil {
			t.Fatal(err)
		}
		for i := range c.options {
			c.options[i] = strings.Replace(c.options[i], "CONFIG", config, 1)
		}
		if err := CheckPrograms(c.options); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q, %q: %v, want %q", c.options, c.config, err, c.want)
		}
	}
}
