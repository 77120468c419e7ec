package remote

import (
	"bytes"
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

// maxHops bounds chains of jump hosts: two hosts that jump through each other
// would otherwise be resolved for ever.
const maxHops = 8

// Resolver determines how to connect to a target. The zero value uses the real ssh and the
// real environment.
type Resolver struct {
	Run    Runner              // runs ssh -G; nil: os/exec
	Getenv func(string) string // nil: os.Getenv
	Home   string              // "": the user's home folder
}

// Resolve is Resolver.Resolve with the real ssh and the real environment.
func Resolve(ctx context.Context, t Target) (Config, error) {
	return Resolver{}.Resolve(ctx, t)
}

// Resolve reads the user's OpenSSH configuration for the target with `ssh -G`. A complete
// target needs no ssh, see Target.pinned.
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
	cfg, err := r.resolve(ctx, t, 0)
	if err != nil {
		return Config{}, failure.On(t.Name, fmt.Errorf("resolve ssh target %s: %w", t.Host, err))
	}
	return cfg, nil
}

func (r Resolver) resolve(ctx context.Context, t Target, depth int) (Config, error) {
	if depth > maxHops {
		return Config{}, fmt.Errorf("more than %d jump hosts: do they jump through each other?", maxHops)
	}
	if !plainWord(t.Host) {
		return Config{}, fmt.Errorf("%q is not a host name", t.Host)
	}
	if t.User != nil && !plainUser(*t.User) {
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
	if t.Via != nil {
		via, err := r.resolve(ctx, *t.Via, depth+1)
		if err != nil {
			return Config{}, fmt.Errorf("jump host %s: %w", t.Via.Host, err)
		}
		via.Node = t.Name
		cfg.Via = &via
	}
	if t.pinned() {
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
	said, err := parseSettings(out)
	if err != nil {
		return Config{}, err
	}
	return r.fill(ctx, cfg, t, said, depth)
}

// sshCommand returns the `ssh -G` command. A port or user of the target comes
// before its options, since ssh keeps the first value it sees.
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

// fill adds the settings from ssh to cfg.
func (r Resolver) fill(ctx context.Context, cfg Config, t Target, said settings, depth int) (Config, error) {
	var err error
	if cfg.HostName = said.get("hostname"); cfg.HostName == "" {
		return Config{}, errors.New("ssh -G printed no hostname")
	}
	if !plainWord(cfg.HostName) {
		return Config{}, fmt.Errorf("ssh -G says hostname %q, which is not a host name", cfg.HostName)
	}
	if cfg.User = said.get("user"); !plainUser(cfg.User) {
		return Config{}, fmt.Errorf("ssh -G says user %q, which is not a user name", cfg.User)
	}
	if cfg.Port, err = said.number("port"); err != nil {
		return Config{}, err
	}
	if cfg.Port < 1 || cfg.Port > 65535 {
		return Config{}, fmt.Errorf("ssh -G says port %q, which is not a port", said.get("port"))
	}
	if err := said.check(); err != nil {
		return Config{}, err
	}
	cfg.Warnings = said.warnings()
	cfg.Network = map[string]string{"inet": "tcp4", "inet6": "tcp6"}[said.get("addressfamily")]
	if cfg.Network == "" {
		cfg.Network = "tcp"
	}

	cfg.HostKeyAlias = said.get("hostkeyalias")
	exp := r.expander(cfg)
	ours := cfg.IdentityFiles
	if cfg.IdentityFiles, err = exp.files(said["identityfile"]); err != nil {
		return Config{}, err
	}
	cfg.IdentityFiles = append(slices.Clone(ours), cfg.IdentityFiles...)
	if cfg.CertificateFiles, err = exp.files(said["certificatefile"]); err != nil {
		return Config{}, err
	}
	if cfg.KnownHosts, err = exp.files(said.files("userknownhostsfile")); err != nil {
		return Config{}, err
	}
	if cfg.GlobalKnownHosts, err = exp.files(said.files("globalknownhostsfile")); err != nil {
		return Config{}, err
	}
	if cfg.IdentityAgent, err = r.agent(exp, said.get("identityagent")); err != nil {
		return Config{}, err
	}
	cfg.IdentitiesOnly = said.yes("identitiesonly")
	cfg.HashKnownHosts = said.yes("hashknownhosts")
	cfg.HostKeyAlgos = said.algorithms("hostkeyalgorithms")
	strict := said.get("stricthostkeychecking")
	cfg.AcceptNew = strict == "accept-new" || said.no("stricthostkeychecking")
	if cfg.ConnectTimeout, err = said.seconds("connecttimeout"); err != nil {
		return Config{}, err
	}
	if cfg.KeepAliveInterval, err = said.seconds("serveraliveinterval"); err != nil {
		return Config{}, err
	}
	if cfg.KeepAliveInterval > 0 {
		if cfg.KeepAliveMax, err = said.number("serveralivecountmax"); err != nil {
			return Config{}, err
		}
	}
	if cfg.Via != nil {
		return cfg, nil
	}
	if jump := said.get("proxyjump"); jump != "" && jump != "none" {
		via, err := r.jump(ctx, t, jump, depth)
		if err != nil {
			return Config{}, err
		}
		cfg.Via = &via
		return cfg, nil
	}
	if command := said.get("proxycommand"); command != "" && command != "none" {
		if cfg.ProxyCommand, err = exp.text(command); err != nil {
			return Config{}, fmt.Errorf("ProxyCommand: %w", err)
		}
	}
	return cfg, nil
}

// jump resolves the last host of a chain, with the rest of the chain as its
// own ProxyJump, which is how ssh reads it too. Of the target's options, only
// the choice of the configuration file reaches the jump hosts, as with ssh.
func (r Resolver) jump(ctx context.Context, t Target, chain string, depth int) (Config, error) {
	hops := strings.Split(chain, ",")
	last, err := parseHop(hops[len(hops)-1])
	if err != nil {
		return Config{}, err
	}
	via := Target{Name: t.Name, Host: last.host, SSHOptions: configFile(t.SSHOptions)}
	if last.user != "" {
		via.User = &last.user
	}
	if last.port != "" {
		port, _ := strconv.Atoi(last.port) // parseHop has validated it
		via.Port = &port
	}
	if rest := hops[:len(hops)-1]; len(rest) > 0 {
		via.SSHOptions = append(via.SSHOptions, "-J", strings.Join(rest, ","))
	}
	cfg, err := r.resolve(ctx, via, depth+1)
	if err != nil {
		return Config{}, fmt.Errorf("jump host %s: %w", last.host, err)
	}
	return cfg, nil
}

// configFile picks -F out of ssh options; the last one counts.
func configFile(options []string) []string {
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

// agent returns the agent's socket, from IdentityAgent or otherwise the environment.
func (r Resolver) agent(exp expander, said string) (string, error) {
	switch {
	case said == "none":
		return "", nil
	case said == "" || said == "SSH_AUTH_SOCK":
		return r.Getenv("SSH_AUTH_SOCK"), nil
	case strings.HasPrefix(said, "$") && !strings.HasPrefix(said, "${"):
		return r.Getenv(said[1:]), nil
	}
	return exp.file(said)
}

func (r Resolver) expander(cfg Config) expander {
	tokens := map[byte]string{
		'd': r.Home, 'h': cfg.HostName, 'n': cfg.Alias, 'p': strconv.Itoa(cfg.Port), 'r': cfg.User,
		'k': cfg.HostName,
	}
	if cfg.HostKeyAlias != "" {
		tokens['k'] = cfg.HostKeyAlias
	}
	if name, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(name, ".")
		tokens['l'], tokens['L'] = name, short
	}
	if u, err := user.Current(); err == nil {
		tokens['u'], tokens['i'] = u.Username, u.Uid
	}
	return expander{tokens: tokens, getenv: r.Getenv, home: r.Home}
}

// runLocal is the default Runner.
func runLocal(ctx context.Context, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = 300 * time.Millisecond
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}
