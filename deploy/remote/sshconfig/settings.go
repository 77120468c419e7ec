package sshconfig

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// settings is the parsed output of `ssh -G`.
type settings struct {
	values map[string][]string // lower-case keyword → its values; some keywords occur more than once
	tokens map[string]string   // what %-tokens in values mean, such as %h
	errs   []error             // of values that cannot be used
}

// parseSettings parses the output of `ssh -G`. A keyword without a value gets an empty value, and is no error, because
// the printed keywords differ between versions of ssh.
func parseSettings(out string) *settings {
	s := &settings{values: map[string][]string{}}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		key = strings.ToLower(key)
		s.values[key] = append(s.values[key], strings.TrimSpace(value))
	}
	return s
}

// get returns the first value of a keyword that is not empty, or "".
func (s *settings) get(key string) string { return cmp.Or(s.values[key]...) }

// getOptional is like get, but returns "" for the value none.
func (s *settings) getOptional(key string) string {
	if value := s.get(key); value != "none" {
		return value
	}
	return ""
}

// isYes reports whether a setting is on. Versions of ssh print "yes" or "true".
func (s *settings) isYes(key string) bool { return s.get(key) == "yes" || s.get(key) == "true" }

func (s *settings) number(key string) int {
	v := s.getOptional(key)
	if v == "" {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		s.errs = append(s.errs, fmt.Errorf("ssh -G says %s %q, which is not a number", key, v))
	}
	return n
}

func (s *settings) seconds(key string) time.Duration {
	return time.Duration(min(s.number(key), 1<<20)) * time.Second
}

// words splits a value that is a list of file names. ssh prints the names on one line without quotes. So if a word does not
// begin with /, ~, $ or %, words takes it for the rest of the previous file name, which contains a blank.
func (s *settings) words(key string) []string {
	var files []string
	for _, word := range strings.Fields(s.get(key)) {
		if n := len(files); n > 0 && word != "none" && !strings.ContainsAny(word[:1], "/~$%") {
			files[n-1] += " " + word
			continue
		}
		files = append(files, word)
	}
	return files
}

// files expands file names. It removes empty names and "none".
func (s *settings) files(names []string) []string {
	var out []string
	for _, name := range names {
		if name != "" && name != "none" {
			out = append(out, s.expandFile(name))
		}
	}
	return out
}

// agentSocket returns the path of the agent's socket: from the IdentityAgent setting, or from SSH_AUTH_SOCK if the
// setting is empty. It returns "" if no agent is to be used.
func (s *settings) agentSocket() string {
	switch setting := s.get("identityagent"); {
	case setting == "none":
		return ""
	case setting == "" || setting == "SSH_AUTH_SOCK":
		return os.Getenv("SSH_AUTH_SOCK")
	case setting[0] == '$' && !strings.HasPrefix(setting, "${"):
		return os.Getenv(setting[1:])
	default:
		return s.expandFile(setting)
	}
}

// setTokens defines the %-tokens of ssh_config(5) for a host.
func (s *settings) setTokens(cfg Config) {
	home, _ := os.UserHomeDir()
	s.tokens = map[string]string{
		"%%": "%", "%d": home, "%h": cfg.HostName, "%n": cfg.Alias, "%p": strconv.Itoa(cfg.Port), "%r": cfg.User,
		"%k": cmp.Or(cfg.HostKeyAlias, cfg.HostName),
	}
	if name, err := os.Hostname(); err == nil {
		s.tokens["%l"] = name
		s.tokens["%L"], _, _ = strings.Cut(name, ".")
	}
	if u, err := user.Current(); err == nil {
		s.tokens["%u"], s.tokens["%i"] = u.Username, u.Uid
	}
}

var (
	tokenRE    = regexp.MustCompile(`%.?`)
	variableRE = regexp.MustCompile(`\$\{[^}]*\}`)
)

// expandTokens replaces the %-tokens of a text, which `ssh -G` prints unexpanded.
func (s *settings) expandTokens(text string) string {
	return tokenRE.ReplaceAllStringFunc(text, func(token string) string {
		value, ok := s.tokens[token]
		if !ok {
			s.errs = append(s.errs, fmt.Errorf("%s in %q is not supported", token, text))
		}
		return value
	})
}

// expandFile replaces the %-tokens, ${VARIABLES} and the leading ~ of a file name.
func (s *settings) expandFile(name string) string {
	out := variableRE.ReplaceAllStringFunc(s.expandTokens(name), func(variable string) string {
		value := os.Getenv(variable[2 : len(variable)-1])
		if value == "" {
			s.errs = append(s.errs, fmt.Errorf("the environment variable %s of %q is not set", variable, name))
		}
		return value
	})
	if out == "~" || strings.HasPrefix(out, "~/") {
		out = s.tokens["%d"] + out[1:]
	}
	return out
}
