package nixeval

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Maximum lengths of names in bytes. Names are used as file names, host names, and in XML and DNS.
const (
	maxHostLabel = 63  // a label of a host name, such as the name of a machine that nixbench boots
	maxNodeName  = 200 // name of a named node or a cluster, which is used in file names
	maxHostName  = 253
	maxUserName  = 255
	maxTag       = 200
)

// checkPrintable returns an error if s must not be shown unquoted: if s is not UTF-8, or contains
// characters that are not printable. Control characters can change a terminal; bidirectional and
// invisible characters can make a name look like another name.
func checkPrintable(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%q is not UTF-8", s)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%+q has the character %U, a control, invisible or bidirectional character", s, r)
		}
	}
	return nil
}

// checkOptions validates the values of deployment options, except keys: [CheckKeys] validates them. It returns all errors, joined.
// Nix has already checked the types of the options.
func (d Deployment) checkOptions() error {
	at := func(option string, err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("deployment.%s: %w", option, err)
	}
	var errs []error
	for _, host := range d.TargetHosts {
		errs = append(errs, at("targetHost", checkWord(host, "a host name or address", maxHostName)))
	}
	if d.TargetUser != nil {
		errs = append(errs, at("targetUser", checkUser(*d.TargetUser)))
	}
	if d.TargetPort != nil && (*d.TargetPort < 1 || *d.TargetPort > 65535) {
		errs = append(errs, at("targetPort", fmt.Errorf("%d is not a port; use 1 to 65535", *d.TargetPort)))
	}
	for _, tag := range d.Tags {
		errs = append(errs, at("tags", checkTag(tag)))
	}
	return errors.Join(errs...)
}

func checkTag(tag string) error {
	if len(tag) > maxTag {
		return fmt.Errorf("%q… is longer than %d bytes", tag[:20], maxTag)
	}
	return checkPrintable(tag)
}

// checkWord rejects values that a shell or ssh's command line would interpret. what describes a valid value, for the error.
func checkWord(s, what string, limit int) error {
	switch {
	case len(s) > limit:
		return fmt.Errorf("%q… is longer than %d bytes", s[:20], limit)
	case s == "", s[0] == '-', strings.ContainsAny(s, " '\"`$\\;&<>|(){}*?!#~"):
		return fmt.Errorf("%q is not %s", s, what)
	}
	return checkPrintable(s)
}

// checkUser validates a user name for ssh. Unlike checkWord, and as OpenSSH, it accepts single
// backslashes before the last character, as in `CORP\alice`.
func checkUser(s string) error {
	err := checkWord(s, "a user name", maxUserName)
	if err != nil && !strings.HasSuffix(s, `\`) && !strings.Contains(s, `\\`) && len(s) <= maxUserName {
		return checkWord(strings.ReplaceAll(s, `\`, ""), "a user name", maxUserName)
	}
	return err
}

// checkName validates the length of a name, and that all its characters are printable. The regular
// expressions for names do not check this.
func checkName(name string, limit int) error {
	if len(name) > limit {
		return fmt.Errorf("%q… has a name of %d bytes; at most %d are allowed", name[:20], len(name), limit)
	}
	return checkPrintable(name)
}
