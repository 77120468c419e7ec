package nixeval

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits for names. Names become file names, host names, and labels in XML and DNS.
const (
	maxHostLabel = 63  // of a host name, such as that of a machine that nixbench boots
	maxNodeName  = 200 // of a named node, whose name is used in file names
	maxHostName  = 253
	maxUserName  = 255
	maxTag       = 200
)

// checkPrintable returns an error if a text must not be shown or written unquoted: control
// characters can change a terminal, and bidirectional and invisible characters make a name look
// like another.
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

// check returns the errors in a unit's deployment options. It runs after the survey, before
// anything is evaluated or built with the options. Nix has already checked their types. [CheckKeys] checks
// the keys.
func (d Deployment) check() error {
	at := func(option string, err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("deployment.%s: %w", option, err)
	}
	var errs []error
	if d.TargetHost != nil {
		errs = append(errs, at("targetHost", checkWord(*d.TargetHost, "a host name or address", maxHostName)))
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

// checkWord rejects values that a shell or the command line of ssh would interpret.
func checkWord(s, what string, limit int) error {
	switch {
	case len(s) > limit:
		return fmt.Errorf("%q… is longer than %d bytes", s[:20], limit)
	case s == "", s[0] == '-', strings.ContainsAny(s, " '\"`$\\;&<>|(){}*?!#~"):
		return fmt.Errorf("%q is not %s", s, what)
	}
	return checkPrintable(s)
}

// checkUser accepts single backslashes inside, as in `CORP\alice`. OpenSSH does so, too.
func checkUser(s string) error {
	err := checkWord(s, "a user name", maxUserName)
	if err != nil && !strings.HasSuffix(s, `\`) && !strings.Contains(s, `\\`) && len(s) <= maxUserName {
		return checkWord(strings.ReplaceAll(s, `\`, ""), "a user name", maxUserName)
	}
	return err
}

// checkName checks what the regular expressions for names do not: the length, and that all
// characters are printable.
func checkName(name string, limit int) error {
	if len(name) > limit {
		return fmt.Errorf("%q… has a name of %d bytes; at most %d are allowed", name[:20], len(name), limit)
	}
	return checkPrintable(name)
}
