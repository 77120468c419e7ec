package sshconfig

import (
	"fmt"
	"path/filepath"
	"strings"
)

// expander expands %-tokens, ${VARIABLES} and a leading ~ in the settings that `ssh -G` prints
// unexpanded: file names and ProxyCommand.
type expander struct {
	tokens map[byte]string
	getenv func(string) string
	home   string
}

// expandTokens replaces the %-tokens of a text.
func (e expander) expandTokens(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			return "", fmt.Errorf("%q ends with %%", s)
		}
		if s[i] == '%' {
			b.WriteByte('%')
			continue
		}
		value, ok := e.tokens[s[i]]
		if !ok {
			return "", fmt.Errorf("%%%c in %q is not supported", s[i], s)
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

// expandFile replaces the %-tokens, variables and the leading ~ of a file name.
func (e expander) expandFile(s string) (string, error) {
	s, err := e.expandTokens(s)
	if err != nil {
		return "", err
	}
	for {
		start := strings.Index(s, "${")
		if start < 0 {
			break
		}
		length := strings.IndexByte(s[start:], '}')
		if length < 0 {
			return "", fmt.Errorf("%q has no closing brace", s)
		}
		name := s[start+2 : start+length]
		value := e.getenv(name)
		if value == "" {
			return "", fmt.Errorf("the environment variable %s of %q is not set", name, s)
		}
		if strings.Contains(value, "${") {
			return "", fmt.Errorf("the environment variable %s contains ${", name)
		}
		s = s[:start] + value + s[start+length+1:]
	}
	if s == "~" {
		return e.home, nil
	}
	if rest, ok := strings.CutPrefix(s, "~/"); ok {
		return filepath.Join(e.home, rest), nil
	}
	return s, nil
}

// expandFiles expands file names. It removes empty names and "none".
func (e expander) expandFiles(names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		if name == "" || name == "none" {
			continue
		}
		name, err := e.expandFile(name)
		if err != nil {
			return nil, err
		}
		out = append(out, name)
	}
	return out, nil
}
