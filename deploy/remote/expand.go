package remote

import (
	"fmt"
	"path/filepath"
	"strings"
)

// expander replaces what `ssh -G` prints unexpanded in file names and in a
// ProxyCommand: %-tokens, ${VARIABLES} and a leading ~.
type expander struct {
	tokens map[byte]string
	getenv func(string) string
	home   string
}

// text replaces %-tokens.
func (e expander) text(s string) (string, error) {
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

// file expands the name of a file.
func (e expander) file(s string) (string, error) {
	s, err := e.text(s)
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

// files expands names, dropping "none".
func (e expander) files(names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		if name == "" || name == "none" {
			continue
		}
		name, err := e.file(name)
		if err != nil {
			return nil, err
		}
		out = append(out, name)
	}
	return out, nil
}
