package runs

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

// redacted is written in place of text that must not be recorded.
const redacted = "…"

// SafeArgs returns a copy of a command line without secrets, so that it can be recorded. No option
// of nixbench is a secret, but users may pass secrets nevertheless: in URLs, in options that do not
// exist, or in the command that `exec` runs. The command after `--` is replaced by the number of its
// arguments.
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
			out = append(out, removeSecrets(secretSetRE.ReplaceAllString(args[i], "$1="+redacted+"\x00")))
		case m[2] != "":
			out = append(out, m[1]+"="+redacted)
		default:
			out = append(out, m[1])
			if i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				out = append(out, redacted)
				i++
			}
		}
	}
	return out
}

// SafeURLs removes users and passwords, and parameters such as access tokens, from the URLs in s.
func SafeURLs(s string) string { return removeSecrets(s) }

// removeSecrets is like SafeURLs, and also removes everything after a NUL byte.
func removeSecrets(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	s = webUserRE.ReplaceAllString(s, "$1"+redacted+"@")
	s = userinfoRE.ReplaceAllString(s, "$1:"+redacted+"@")
	return queryRE.ReplaceAllString(s, "$1="+redacted)
}
