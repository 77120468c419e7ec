package runs

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	secretRE   = regexp.MustCompile(`(?is)^(.*?(?:password|passphrase|passwd|token|secret|credential|api-?key)[^=]*)(=.*)?$`)
	webUserRE  = regexp.MustCompile(`(https?://)[^/@\s]+@`)
	userinfoRE = regexp.MustCompile(`(://[^/@:\s]*):[^/@\s]+@`)
	queryRE    = regexp.MustCompile(`(?i)([?&][a-z_-]*(?:password|token|secret|key|auth)[a-z_-]*)=[^&#\s]+`)
)

// redacted replaces text that must not be recorded, such as a password.
const redacted = "…"

// SafeArgs returns a copy of a command line without secrets, so that it can be recorded. No option of nixbench is a
// secret, but users may pass secrets nevertheless: in URLs, in options of Nix such as access-tokens, or in the command
// after `--`. The arguments after `--` are replaced by their number.
func SafeArgs(args []string) []string {
	out := []string{}
	for i := 0; i < len(args); i++ {
		m := secretRE.FindStringSubmatch(args[i])
		isSecret := m != nil && !strings.Contains(m[1], "://")
		switch {
		case args[i] == "--":
			if n := len(args) - i - 1; n > 0 {
				out = append(out, "--", fmt.Sprintf("(%d arguments)", n))
			}
			return out
		case isSecret && m[2] != "":
			out = append(out, m[1]+"="+redacted)
		case isSecret && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
			out = append(out, m[1], redacted)
			i++
		default:
			out = append(out, RemoveURLSecrets(args[i]))
		}
	}
	return out
}

// RemoveURLSecrets removes users and passwords, and parameters such as access tokens, from the URLs in s.
func RemoveURLSecrets(s string) string {
	s = webUserRE.ReplaceAllString(s, "$1"+redacted+"@")
	s = userinfoRE.ReplaceAllString(s, "$1:"+redacted+"@")
	return queryRE.ReplaceAllString(s, "$1="+redacted)
}
