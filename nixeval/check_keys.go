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

// maxKeyName is the maximum length of a key's file name, in bytes. The temporary file of the key has a longer name, and that name
// must not exceed the limit of file systems (255 bytes).
const maxKeyName = 200

// CheckKeys validates the options of the keys of a node or unit, but not the contents of the keys. It returns all errors, joined.
// Each error begins with prefix, such as `web-1.`, and the name of the option.
func CheckKeys(prefix string, keys map[string]Key) error {
	var errs []error
	owner := map[string]string{} // path → name of the key with that path
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

// displayName returns the name as messages show it. It quotes a name that is empty or has unprintable characters.
func displayName(name string) string {
	if name == "" || checkPrintable(name) != nil {
		return fmt.Sprintf("%+q", name)
	}
	return name
}

// Check returns the key's path on the node and its file mode. It validates all options of the key
// except its source; the error begins with the name of the option. name is the key's attribute
// name.
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

// checkSource returns an error unless the key has exactly one source. It rejects a relative
// keyFile, because a relative path depends on the working directory.
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
		return fmt.Errorf("%q is not a file name; use destDir for the folder, and set name to the name of the file", name)
	case len(name) > maxKeyName:
		return fmt.Errorf("%q… is longer than %d bytes", name[:20], maxKeyName)
	}
	return checkPrintable(name)
}

// checkOwner rejects names of users and groups that chown would interpret differently, such as
// user:group.
func checkOwner(owner string) error {
	if owner == "" || strings.HasPrefix(owner, "-") || strings.HasPrefix(owner, "+") || strings.ContainsAny(owner, ":/, ") || len(owner) > maxUserName {
		return fmt.Errorf("%q is not a name or number", owner)
	}
	return checkPrintable(owner)
}
