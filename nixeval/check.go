package nixeval

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of names. They become file names, host names, labels in XML and DNS.
const (
	maxHostLabel = 63  // of a host name, which a machine of ours gets
	maxNodeName  = 200 // of a named node, which names files
	maxHostName  = 253
	maxUserName  = 255
	maxTag       = 200
)

// printable says why a text cannot be shown or written as it is: control characters can change a
// terminal, and bidirectional and invisible ones make a name look like another.
func printable(s string) error {
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

// check is what a survey finds wrong with a unit's deployment options, before anything is
// evaluated or built with them. The options' types have been checked by Nix, and [CheckKeys] is about
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
	return printable(tag)
}

// checkWord refuses what a command line of ssh would read as something else.
func checkWord(s, what string, limit int) error {
	switch {
	case len(s) > limit:
		return fmt.Errorf("%q… is longer than %d bytes", s[:20], limit)
	case s == "", s[0] == '-', strings.ContainsAny(s, " '\"`$\\;&<>|(){}*?!#~"):
		return fmt.Errorf("%q is not %s", s, what)
	}
	return printable(s)
}

// checkUser allows single backslashes inside, as in `CORP\alice`. OpenSSH does so, too.
func checkUser(s string) error {
	err := checkWord(s, "a user name", maxUserName)
	if err != nil && !strings.HasSuffix(s, `\`) && !strings.Contains(s, `\\`) && len(s) <= maxUserName {
		return checkWord(strings.ReplaceAll(s, `\`, ""), "a user name", maxUserName)
	}
	return err
}

// checkName is about what the form of a name leaves open: its length, and what it looks like.
func checkName(name string, limit int) error {
	if len(name) > limit {
		return fmt.Errorf("%q… has a name of %d bytes; at most %d are allowed", name[:20], len(name), limit)
	}
	return printable(name)
}
