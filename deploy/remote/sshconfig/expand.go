package sshconfig

import (
	"fmt"
	"regexp"
	"strings"
)

// expander expands %-tokens, ${VARIABLES} and a leading ~ in the settings that `ssh -G` prints
// unexpanded: file names and ProxyCommand.
type expander struct {
	tokens map[string]string // token, such as %h → its value
	getenv func(string) string
	home   string
}

var (
	tokenForm    = regexp.MustCompile(`%.?`)
	variableForm = regexp.MustCompile(`\$\{[^}]*\}`)
)

// expandTokens replaces the %-tokens of a text.
func (e expander) expandTokens(s string) (out string, err error) {
	out = tokenForm.ReplaceAllStringFunc(s, func(token string) string {
		value, ok := e.tokens[token]
		if !ok {
			err = fmt.Errorf("%s in %q is not supported", token, s)
		}
		return value
	})
	return out, err
}

// expandFile replaces the %-tokens, variables and the leading ~ of a file name.
func (e expander) expandFile(s string) (string, error) {
	out, err := e.expandTokens(s)
	out = variableForm.ReplaceAllStringFunc(out, func(variable string) string {
		value := e.getenv(variable[2 : len(variable)-1])
		if value == "" && err == nil {
			err = fmt.Errorf("the environment variable %s of %q is not set", variable, s)
		}
		return value
	})
	if out == "~" || strings.HasPrefix(out, "~/") {
		out = e.home + out[1:]
	}
	return out, err
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
