package state

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	secretFlagRE = regexp.MustCompile(`(?i)^(--?[a-z-]*(?:password|passphrase|passwd|token|secret|credential|api-?key)[a-z-]*)(=.*)?$`)
	secretSetRE  = regexp.MustCompile(`(?i)^([^=]*(?:password|passphrase|passwd|token|secret|credential|apikey)[^=]*)=.`)
	webUserRE    = regexp.MustCompile(`(https?://)[^/@\s]+@`)
	userinfoRE   = regexp.MustCompile(`(://[^/@:\s]*):[^/@\s]+@`)
	queryRE      = regexp.MustCompile(`(?i)([?&][a-z_-]*(?:password|token|secret|key|auth)[a-z_-]*)=[^&#\s]+`)
)

// hidden stands in the place of what is not recorded.
const hidden = "…"

// SafeArgs is a command line as it may be recorded. nixbench takes no secrets in its
// arguments, but people pass them all the same: in URLs, in flags that do not
// exist, in the command that `exec` runs. That command, after `--`, is not recorded.
func SafeArgs(args []string) []string {
	out := []string{}
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			if n := len(args) - i - 1; n > 0 {
				out = append(out, "--", fmt.Sprintf("(%d arguments)", n))
			}
			break
		}
		m := secretFlagRE.FindStringSubmatch(args[i])
		switch {
		case m == nil:
			out = append(out, safeText(secretSetRE.ReplaceAllString(args[i], "$1="+hidden+"\x00")))
		case m[2] != "":
			out = append(out, m[1]+"="+hidden)
		default:
			out = append(out, m[1])
			if i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				out = append(out, hidden)
				i++
			}
		}
	}
	return out
}

// safeText hides what URLs tell about their user. What follows a NUL is hidden, too.
func safeText(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	s = webUserRE.ReplaceAllString(s, "$1"+hidden+"@")
	s = userinfoRE.ReplaceAllString(s, "$1:"+hidden+"@")
	return queryRE.ReplaceAllString(s, "$1="+hidden)
}
