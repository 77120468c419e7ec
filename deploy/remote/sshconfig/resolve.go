package sshconfig

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/failure"
)

// Resolver determines how to connect to a target. The zero value uses the real ssh and the
// real environment.
type Resolver struct {
	Run    Runner              // runs ssh -G; nil: os/exec
	Getenv func(string) string // nil: os.Getenv
	Home   string              // "": the user's home folder
}

// Resolve calls Resolver.Resolve with the real ssh and the real environment.
func Resolve(ctx context.Context, t Target) (Config, error) {
	return Resolver{}.Resolve(ctx, t)
}

// Resolve returns the Config of a target and its fallbacks. It reads the user's OpenSSH configuration with `ssh -G`,
// except for a complete target (see Target.isComplete).
func (r Resolver) Resolve(ctx context.Context, t Target) (Config, error) {
	if r.Run == nil {
		r.Run = runLocal
	}
	if r.Getenv == nil {
		r.Getenv = os.Getenv
	}
	if r.Home == "" {
		r.Home, _ = os.UserHomeDir()
	}
	var all []Config
	for _, t.Host = range append([]string{t.Host}, t.Fallbacks...) {
		cfg, err := r.resolveHost(ctx, t)
		if err != nil {
			return Config{}, failure.On(t.Name, fmt.Errorf("resolve ssh target %s: %w", t.Host, err))
		}
		all = append(all, cfg)
	}
	cfg := all[0]
	cfg.Fallbacks = append(cfg.Fallbacks, all[1:]...)
	return cfg, nil
}

// resolveHost does what Resolve does for one host of the target.
func (r Resolver) resolveHost(ctx context.Context, t Target) (Config, error) {
	if !isPlainWord(t.Host) {
		return Config{}, fmt.Errorf("%q is not a host name", t.Host)
	}
	if t.User != nil && !isPlainUser(*t.User) {
		return Config{}, fmt.Errorf("%q is not a user name", *t.User)
	}
	if t.Port != nil && (*t.Port < 1 || *t.Port > 65535) {
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

	out, err := r.Run(ctx, sshCommand(t)...)
	if errors.Is(err, exec.ErrNotFound) {
		return Config{}, fmt.Errorf("ssh is not installed, and only it can read your OpenSSH configuration: install the OpenSSH client: %w", err)
	}
	if err != nil {
		return Config{}, err
	}
	printed, err := parseSettings(out)
	if err != nil {
		return Config{}, err
	}
	return r.applySettings(cfg, t, printed)
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
func (r Resolver) applySettings(cfg Config, t Target, printed settings) (Config, error) {
	var errs []error
	number := func(key string) int {
		n, err := printed.number(key)
		errs = append(errs, err)
		return n
	}
	seconds := func(key string) time.Duration { return time.Duration(min(number(key), 1<<20)) * time.Second }

	cfg.HostName, cfg.User, cfg.Port = printed.get("hostname"), printed.get("user"), number("port")
	switch {
	case !isPlainWord(cfg.HostName):
		return Config{}, fmt.Errorf("ssh -G says hostname %q, which is not a host name", cfg.HostName)
	case !isPlainUser(cfg.User):
		return Config{}, fmt.Errorf("ssh -G says user %q, which is not a user name", cfg.User)
	case cfg.Port < 1 || cfg.Port > 65535:
		return Config{}, fmt.Errorf("ssh -G says port %q, which is not a port", printed.get("port"))
	}
	if printed.isYes("proxyusefdpass") {
		errs = append(errs, errors.New("ProxyUseFdpass is not supported: use ProxyJump, or a ProxyCommand that carries the connection itself"))
	}
	cfg.Network = cmp.Or(map[string]string{"inet": "tcp4", "inet6": "tcp6"}[printed.get("addressfamily")], "tcp")
	cfg.HostKeyAlias = printed.get("hostkeyalias")
	exp := r.newExpander(cfg)
	files := func(names []string) []string {
		expanded, err := exp.expandFiles(names)
		errs = append(errs, err)
		return expanded
	}
	cfg.IdentityFiles = slices.Concat(cfg.IdentityFiles, files(printed["identityfile"]))
	cfg.CertificateFiles = files(printed["certificatefile"])
	cfg.KnownHosts, cfg.GlobalKnownHosts = files(printed.files("userknownhostsfile")), files(printed.files("globalknownhostsfile"))
	agent, err := r.agentSocket(exp, printed.get("identityagent"))
	cfg.IdentityAgent, errs = agent, append(errs, err)
	cfg.IdentitiesOnly, cfg.HashKnownHosts = printed.isYes("identitiesonly"), printed.isYes("hashknownhosts")
	// A changed host key is refused also with "no".
	cfg.AcceptNew = slices.Contains([]string{"accept-new", "no", "off", "false"}, printed.get("stricthostkeychecking"))
	cfg.ConnectTimeout, cfg.KeepAliveInterval = seconds("connecttimeout"), seconds("serveraliveinterval")
	if cfg.KeepAliveInterval > 0 {
		cfg.KeepAliveMax = number("serveralivecountmax")
	}
	if err := errors.Join(errs...); err != nil || len(cfg.Jump) > 0 {
		return cfg, err
	}
	if jump := printed.get("proxyjump"); jump != "" && jump != "none" {
		return cfg, cfg.setJump(t.SSHOptions, jump)
	}
	if command := printed.get("proxycommand"); command != "" && command != "none" {
		if cfg.ProxyCommand, err = exp.expandTokens(command); err != nil {
			return Config{}, fmt.Errorf("ProxyCommand: %w", err)
		}
	}
	return cfg, nil
}

// setJump sets c.Jump to the arguments of ssh for the last host of a ProxyJump chain. The other hosts of the chain become the ProxyJump
// of that host. Like ssh, it uses only one of the target's options for jump hosts: -F, the configuration file.
func (c *Config) setJump(options []string, chain string) error {
	hops := strings.Split(chain, ",")
	for i, hop := range hops {
		hops[i] = strings.TrimPrefix(hop, "ssh://")
		if host := hops[i][strings.LastIndexByte(hops[i], '@')+1:]; !isPlainUser(hops[i]) || !isPlainWord(host) {
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

// agentSocket returns the path of the agent's socket: from the IdentityAgent setting, or from SSH_AUTH_SOCK if the
// setting is empty. It returns "" if no agent is to be used.
func (r Resolver) agentSocket(exp expander, setting string) (string, error) {
	switch {
	case setting == "none":
		return "", nil
	case setting == "" || setting == "SSH_AUTH_SOCK":
		return r.Getenv("SSH_AUTH_SOCK"), nil
	case strings.HasPrefix(setting, "$") && !strings.HasPrefix(setting, "${"):
		return r.Getenv(setting[1:]), nil
	}
	return exp.expandFile(setting)
}

// newExpander returns an expander with the %-tokens of ssh_config(5) for a host.
func (r Resolver) newExpander(cfg Config) expander {
	tokens := map[string]string{
		"%%": "%", "%d": r.Home, "%h": cfg.HostName, "%n": cfg.Alias, "%p": strconv.Itoa(cfg.Port), "%r": cfg.User,
		"%k": cmp.Or(cfg.HostKeyAlias, cfg.HostName),
	}
	if name, err := os.Hostname(); err == nil {
		tokens["%l"] = name
		tokens["%L"], _, _ = strings.Cut(name, ".")
	}
	if u, err := user.Current(); err == nil {
		tokens["%u"], tokens["%i"] = u.Username, u.Uid
	}
	return expander{tokens: tokens, getenv: r.Getenv, home: r.Home}
}

// runLocal is the default Runner.
func runLocal(ctx context.Context, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = 5 * time.Second // a busy machine may read the output late
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}
