package nixeval

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Maximum lengths of names in bytes. Names are used as file names, host names, and in XML and DNS.
const (
	maxHostLabel = 63  // a label of a host name, such as the name of a machine that nixbench boots
	maxNodeName  = 200 // name of a named node, which is used in file names
	maxCluster   = 170 // name of a cluster: a hypervisor's files have the names of the cluster and a machine, and suffixes of up to 14 bytes
	maxHostName  = 253
	maxUserName  = 255
	maxTag       = 200
	maxKeyName   = 200 // file name of a key; its temporary file has a longer name, which must not exceed 255 bytes
)

// checkText returns an error if s is longer than limit, or must not be shown unquoted: if s is not UTF-8, or contains
// characters that are not printable. Control characters can change a terminal; bidirectional and
// invisible characters can make a name look like another name.
func checkText(s string, limit int) error {
	switch {
	case len(s) > limit:
		return fmt.Errorf("%q… is longer than %d bytes", s[:20], limit)
	case !utf8.ValidString(s):
		return fmt.Errorf("%q is not UTF-8", s)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%+q has the character %U, a control, invisible or bidirectional character", s, r)
		}
	}
	return nil
}

// Patterns of values without the characters that a shell or ssh's command line would interpret. OpenSSH refuses the same characters.
// UserRE accepts single backslashes within the name of a user, as in `CORP\alice`.
const word = "[^-\\x00-\\x20\\x7f'\"`$\\\\;&<>|(){}*?!#~][^\\x00-\\x20\\x7f'\"`$\\\\;&<>|(){}*?!#~]*"

var (
	HostRE = regexp.MustCompile("^" + word + "$")
	UserRE = regexp.MustCompile("^" + word + `(?:\\` + word + ")*$")
)

// checkPattern returns an error if s does not match the pattern. what describes a valid value.
func checkPattern(s string, pattern *regexp.Regexp, what string, limit int) error {
	if err := checkText(s, limit); err != nil || pattern.MatchString(s) {
		return err
	}
	return fmt.Errorf("%q is not %s", s, what)
}

// checkOptions validates the values of deployment options. It returns all errors, joined. Nix has already checked the types of the
// options.
func (d Deployment) checkOptions() error {
	var errs []error
	add := func(option string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("deployment.%s: %w", option, err))
		}
	}
	for _, host := range d.TargetHosts {
		add("targetHost", checkPattern(host, HostRE, "a host name or address", maxHostName))
	}
	if d.TargetUser != nil {
		add("targetUser", checkPattern(*d.TargetUser, UserRE, "a user name", maxUserName))
	}
	if d.TargetPort != nil && (*d.TargetPort < 1 || *d.TargetPort > 65535) {
		add("targetPort", fmt.Errorf("%d is not a port; use 1 to 65535", *d.TargetPort))
	}
	for _, tag := range d.Tags {
		add("tags", checkText(tag, maxTag))
	}
	for _, name := range slices.Sorted(maps.Keys(d.HealthChecks)) {
		add("healthChecks."+displayName(name), d.HealthChecks[name].check(name))
	}
	return errors.Join(append(errs, CheckKeys("", d.Keys))...)
}

// CheckKeys validates the options of the keys of a node or unit, but not the contents of the keys. It returns all errors, joined.
// Each error begins with prefix, such as `web-1.`, and the name of the option.
func CheckKeys(prefix string, keys map[string]Key) error {
	var errs []error
	owner := map[string]string{} // path → name of the key with that path
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		at, err := keys[name].check(name)
		if err == nil && owner[at] != "" {
			err = fmt.Errorf("it has the same path as the key %s, %s; change its name or destDir", owner[at], at)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%sdeployment.keys.%s: %w", prefix, displayName(name), err))
			continue
		}
		owner[at] = name
	}
	return errors.Join(errs...)
}

// displayName returns the name as messages show it. It quotes a name that is empty or has unprintable characters.
func displayName(name string) string {
	if name == "" || checkText(name, len(name)) != nil {
		return fmt.Sprintf("%+q", name)
	}
	return name
}

// Mode returns the file mode of a valid key.
func (k Key) Mode() uint64 {
	mode, _ := strconv.ParseUint(k.Permissions, 8, 32)
	return mode
}

// PathOnNode returns the path of the key's file on the node.
func (k Key) PathOnNode() string {
	if k.Path != "" {
		return path.Clean(k.Path)
	}
	return path.Clean(k.DestDir + "/" + k.Name)
}

// check validates all options of the key, and returns the key's path on the node. An error begins with the name of the option.
// name is the key's attribute name.
func (k Key) check(name string) (at string, err error) {
	at = k.PathOnNode()
	for _, checked := range []struct {
		option string
		err    error
	}{
		{"", checkText(name, len(name))},
		{"name: ", checkFileName(k.Name)},
		{"destDir: ", checkFolder(at)},
		{"path: ", checkFileName(path.Base(at))},
		{"user: ", checkOwner(k.User)},
		{"group: ", checkOwner(k.Group)},
		{"permissions: ", checkMode(k.Permissions)},
		{"", k.checkSource()},
	} {
		if checked.err != nil {
			return at, fmt.Errorf("%s%w", checked.option, checked.err)
		}
	}
	return at, nil
}

// checkFolder validates the folder of a key's path.
func checkFolder(at string) error {
	switch {
	case !strings.HasPrefix(at, "/"):
		return fmt.Errorf("%q is not an absolute path", at)
	case strings.HasPrefix(at, "/nix/store/"):
		return fmt.Errorf("%q is in the store, which all users can read; choose another folder, such as /run/keys", at)
	}
	return checkText(at, len(at))
}

func checkMode(permissions string) error {
	if mode, err := strconv.ParseUint(permissions, 8, 32); err != nil || mode > 0o777 {
		return fmt.Errorf(`%q is not an octal mode from "0000" to "0777", such as "0600"`, permissions)
	}
	return nil
}

// checkSource returns an error unless the key has exactly one source.
func (k Key) checkSource() error {
	return checkOne("text, keyFile, keyCommand and generated", k.Text != nil, k.KeyFile != nil, len(k.KeyCommand) > 0, k.Generated != nil)
}

// checkOne returns an error unless exactly one of several options is set.
func checkOne(options string, set ...bool) error {
	n := 0
	for _, isSet := range set {
		if isSet {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("%d of %s are set; set exactly one of them", n, options)
	}
	return nil
}

func checkFileName(name string) error {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return fmt.Errorf("%q is not a file name; use destDir for the folder, and set name to the name of the file", name)
	}
	return checkText(name, maxKeyName)
}

// checkOwner rejects names of users and groups that chown would interpret differently, such as
// user:group.
func checkOwner(owner string) error {
	if owner == "" || strings.HasPrefix(owner, "-") || strings.HasPrefix(owner, "+") || strings.ContainsAny(owner, ":/, ") {
		return fmt.Errorf("%q is not a name or number", owner)
	}
	return checkText(owner, maxUserName)
}
