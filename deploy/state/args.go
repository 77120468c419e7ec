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

// hidden replaces text that must not be recorded.
const hidden = "…"

// SafeArgs returns a command line from which secrets are removed, so that it can be recorded.
// nixbench takes no secrets in its arguments, but users pass them nevertheless: in URLs, in
// flags that do not exist, in the command that `exec` runs. The command after `--` is not
// recorded, only the number of its arguments.
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

// safeText removes users and passwords from the URLs in s, and everything after a NUL byte.
func safeText(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	s = webUserRE.ReplaceAllString(s, "$1"+hidden+"@")
	s = userinfoRE.ReplaceAllString(s, "$1:"+hidden+"@")
	return queryRE.ReplaceAllString(s, "$1="+hidden)
}
