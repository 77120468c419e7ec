package sshconfig

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// Resolve returns the Config of a target and its fallbacks. It reads the user's OpenSSH configuration with `ssh -G`,
// except for a complete target (see Target.isComplete).
func Resolve(ctx context.Context, t Target) (Config, error) { return resolve(ctx, t, runSSH) }

// resolve is Resolve with the function that runs ssh.
func resolve(ctx context.Context, t Target, run func(context.Context, []string) (string, error)) (Config, error) {
	var all []Config
	for _, t.Host = range append([]string{t.Host}, t.Fallbacks...) {
		cfg, err := resolveHost(ctx, t, run)
		if err != nil {
			return Config{}, failure.On(t.Name, fmt.Errorf("resolve ssh target %s: %w", t.Host, err))
		}
		all = append(all, cfg)
	}
	cfg := all[0]
	cfg.Fallbacks = append(cfg.Fallbacks, all[1:]...)
	return cfg, nil
}

// resolveHost does what resolve does for one host of the target.
func resolveHost(ctx context.Context, t Target, run func(context.Context, []string) (string, error)) (Config, error) {
	switch {
	case !nixeval.HostRE.MatchString(t.Host):
		return Config{}, fmt.Errorf("%q is not a host name", t.Host)
	case t.User != nil && !nixeval.UserRE.MatchString(*t.User):
		return Config{}, fmt.Errorf("%q is not a user name", *t.User)
	case t.Port != nil && (*t.Port < 1 || *t.Port > 65535):
		return Config{}, fmt.Errorf("%d is not a port", *t.Port)
	}
	cfg := Config{Node: t.Name, Alias: t.Host, Escalation: t.Escalation, IdentityFiles: t.IdentityFiles}
	for _, text := range t.HostKeys {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(text))
		if err != nil {
			return Config{}, fmt.Errorf("cannot read the pinned host key %q: %w", text, err)
		}
		cfg.HostKeys = append(cfg.HostKeys, key)
	}
	if t.Jump != "" {
		if err := cfg.setJump(t.SSHOptions, t.Jump); err != nil {
			return Config{}, err
		}
	}
	if t.isComplete() {
		cfg.HostName, cfg.User, cfg.Port, cfg.Network = t.Host, *t.User, 22, "tcp"
		cfg.IdentitiesOnly = true
		if t.Port != nil {
			cfg.Port = *t.Port
		}
		return cfg, nil
	}

	out, err := run(ctx, sshCommand(t))
	if errors.Is(err, exec.ErrNotFound) {
		return Config{}, fmt.Errorf("ssh is not installed, and only it can read your OpenSSH configuration: install the OpenSSH client: %w", err)
	}
	if err != nil {
		return Config{}, err
	}
	return applySettings(cfg, t, parseSettings(out))
}

// sshCommand returns the `ssh -G` command. The target's port and user are in front of its options,
// since ssh uses the first value of each setting.
func sshCommand(t Target) []string {
	argv := []string{"ssh", "-G", "-T"}
	if t.Port != nil {
		argv = append(argv, "-p", strconv.Itoa(*t.Port))
	}
	if t.User != nil {
		argv = append(argv, "-l", *t.User)
	}
	argv = append(argv, t.SSHOptions...)
	return append(argv, "--", t.Host)
}

// applySettings returns cfg with the settings that `ssh -G` has printed.
func applySettings(cfg Config, t Target, printed *settings) (Config, error) {
	cfg.HostName, cfg.User, cfg.Port = printed.get("hostname"), printed.get("user"), printed.number("port")
	switch {
	case !nixeval.HostRE.MatchString(cfg.HostName):
		return Config{}, fmt.Errorf("ssh -G says hostname %q, which is not a host name", cfg.HostName)
	case !nixeval.UserRE.MatchString(cfg.User):
		return Config{}, fmt.Errorf("ssh -G says user %q, which is not a user name", cfg.User)
	case cfg.Port < 1 || cfg.Port > 65535:
		return Config{}, fmt.Errorf("ssh -G says port %q, which is not a port", printed.get("port"))
	case printed.isYes("proxyusefdpass"):
		return Config{}, errors.New("ProxyUseFdpass is not supported: use ProxyJump, or a ProxyCommand that carries the connection itself")
	}
	cfg.Network = cmp.Or(map[string]string{"inet": "tcp4", "inet6": "tcp6"}[printed.get("addressfamily")], "tcp")
	cfg.HostKeyAlias = printed.get("hostkeyalias")
	printed.setTokens(cfg)
	cfg.IdentityFiles = slices.Concat(cfg.IdentityFiles, printed.files(printed.values["identityfile"]))
	cfg.CertificateFiles = printed.files(printed.values["certificatefile"])
	cfg.KnownHosts = printed.files(printed.words("userknownhostsfile"))
	cfg.GlobalKnownHosts = printed.files(printed.words("globalknownhostsfile"))
	cfg.IdentityAgent = printed.agentSocket()
	cfg.IdentitiesOnly, cfg.HashKnownHosts = printed.isYes("identitiesonly"), printed.isYes("hashknownhosts")
	// A changed host key is refused also with "no".
	cfg.AcceptNew = slices.Contains([]string{"accept-new", "no", "off", "false"}, printed.get("stricthostkeychecking"))
	cfg.ConnectTimeout, cfg.KeepAliveInterval = printed.seconds("connecttimeout"), printed.seconds("serveraliveinterval")
	if cfg.KeepAliveInterval > 0 {
		cfg.KeepAliveMax = printed.number("serveralivecountmax")
	}
	jump, command := printed.getOptional("proxyjump"), printed.getOptional("proxycommand")
	switch {
	case len(cfg.Jump) > 0:
	case jump != "":
		printed.errs = append(printed.errs, cfg.setJump(t.SSHOptions, jump))
	case command != "":
		cfg.ProxyCommand = printed.expandTokens(command)
	}
	return cfg, errors.Join(printed.errs...)
}

// setJump sets c.Jump to the arguments of ssh for the last host of a ProxyJump chain. The other hosts of the chain become the ProxyJump
// of that host. Like ssh, it uses only one of the target's options for jump hosts: -F, the configuration file.
func (c *Config) setJump(options []string, chain string) error {
	hops := strings.Split(chain, ",")
	for i, hop := range hops {
		hops[i] = strings.TrimPrefix(hop, "ssh://")
		if host := hops[i][strings.LastIndexByte(hops[i], '@')+1:]; !nixeval.UserRE.MatchString(hops[i]) || !nixeval.HostRE.MatchString(host) {
			return fmt.Errorf("%q is not a jump host", hop)
		}
	}
	last := len(hops) - 1
	c.Jump = configFileOption(options)
	if last > 0 {
		c.Jump = append(c.Jump, "-J", strings.Join(hops[:last], ","))
	}
	c.Jump = append(c.Jump, "--", "ssh://"+hops[last])
	return nil
}

// configFileOption returns the last -F option in a list of ssh options, or nil.
func configFileOption(options []string) []string {
	for i, option := range slices.Backward(options) {
		if option == "-F" && i+1 < len(options) {
			return []string{"-F", options[i+1]}
		}
		if strings.HasPrefix(option, "-F") && len(option) > 2 {
			return []string{option}
		}
	}
	return nil
}

// runSSH runs ssh -G and returns its output.
func runSSH(ctx context.Context, argv []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = 5 * time.Second // a busy machine may read the output late
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(failed.Stderr))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return string(out), nil
}
