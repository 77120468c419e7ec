package nixeval

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxKeyName is below the limit for file names, so that the prefix and suffix of the temporary file
// fit.
const maxKeyName = 200

// CheckKeys returns all errors in the keys of a node or unit, joined. It does not check the keys'
// contents. Each error begins with prefix, such as `web-1.`, and the option.
func CheckKeys(prefix string, keys map[string]Key) error {
	var errs []error
	owner := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		k := keys[name]
		at, _, err := k.Check(name)
		if err == nil {
			err = k.checkSource()
		}
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

// displayName quotes a name that has unprintable characters.
func displayName(name string) string {
	if checkPrintable(name) != nil {
		return fmt.Sprintf("%+q", name)
	}
	return name
}

// Check validates a key, except for its content and its source. The error names the option. Check
// returns the key's path on the node and its mode. name is the key's attribute name.
func (k Key) Check(name string) (at string, mode uint64, err error) {
	if err := checkPrintable(name); err != nil {
		return "", 0, err
	}
	if err := checkFileName(k.Name); err != nil {
		return "", 0, fmt.Errorf("name: %w", err)
	}
	if !strings.HasPrefix(k.DestDir, "/") {
		return "", 0, fmt.Errorf("destDir: %q is not an absolute path", k.DestDir)
	}
	if at = k.Path; at == "" {
		at = k.DestDir + "/" + k.Name
	}
	if !strings.HasPrefix(at, "/") {
		return "", 0, fmt.Errorf("path: %q is not an absolute path", at)
	}
	if err := checkPrintable(at); err != nil {
		return "", 0, fmt.Errorf("destDir: %w", err)
	}
	at = path.Clean(at)
	if err := checkFileName(path.Base(at)); err != nil {
		return "", 0, fmt.Errorf("path: %w", err)
	}
	if strings.HasPrefix(at, "/nix/store/") {
		return "", 0, fmt.Errorf("destDir: %q is in the store, which all users can read; choose another folder, such as /run/keys", at)
	}
	for _, o := range []struct{ option, owner string }{{"user", k.User}, {"group", k.Group}} {
		if err := checkOwner(o.owner); err != nil {
			return "", 0, fmt.Errorf("%s: %w", o.option, err)
		}
	}
	if mode, err = checkMode(k.Permissions); err != nil {
		return "", 0, fmt.Errorf("permissions: %w", err)
	}
	if k.UploadAt != "pre-activation" && k.UploadAt != "post-activation" {
		return "", 0, fmt.Errorf("uploadAt: %q is neither pre-activation nor post-activation", k.UploadAt)
	}
	return at, mode, nil
}

func checkMode(permissions string) (uint64, error) {
	mode, err := strconv.ParseUint(permissions, 8, 32)
	switch {
	case err != nil || mode > 0o7777:
		return 0, fmt.Errorf(`%q is not an octal mode, such as "0600"`, permissions)
	case mode > 0o777:
		return 0, fmt.Errorf(`%q has a set-user-ID, set-group-ID or sticky bit, which a key must not have; use a mode such as "0600"`, permissions)
	}
	return mode, nil
}

// checkSource requires exactly one source. It rejects a relative keyFile because that would depend
// on the working directory.
func (k Key) checkSource() error {
	var has []string
	if k.Text != nil {
		has = append(has, "text")
	}
	if k.KeyFile != nil {
		has = append(has, "keyFile")
	}
	if len(k.KeyCommand) > 0 {
		has = append(has, "keyCommand")
	}
	if k.Generated != nil {
		has = append(has, "generated")
	}
	switch {
	case len(has) == 0:
		return errors.New("it has no source; set one of text, keyFile, keyCommand and generated")
	case len(has) > 1:
		return fmt.Errorf("%s are set; set only one of them", strings.Join(has, " and "))
	case k.KeyFile != nil && !filepath.IsAbs(*k.KeyFile):
		return fmt.Errorf("keyFile: %q is not an absolute path", *k.KeyFile)
	case k.Generated != nil && len(k.Generated.Secret) > 100:
		return fmt.Errorf("generated.secret: the name is longer than 100 bytes")
	}
	return nil
}

func checkFileName(name string) error {
	switch {
	case name == "" || name == "." || name == ".." || strings.Contains(name, "/"):
		return fmt.Errorf("%q is not a file name; use destDir for the folder", name)
	case len(name) > maxKeyName:
		return fmt.Errorf("%q… is longer than %d bytes", name[:20], maxKeyName)
	}
	return checkPrintable(name)
}

// checkOwner rejects names that chown would interpret: it accepts user:group, and formerly
// user.group.
func checkOwner(owner string) error {
	if owner == "" || strings.HasPrefix(owner, "-") || strings.HasPrefix(owner, "+") || strings.ContainsAny(owner, ":/, ") || len(owner) > maxUserName {
		return fmt.Errorf("%q is not a name or number", owner)
	}
	return checkPrintable(owner)
}
