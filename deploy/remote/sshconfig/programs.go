package sshconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
)

// programKeywords are the keywords of ssh_config(5) for which ssh runs a program on this computer. Include is one of
// them, because it adds the keywords of another file.
var programKeywords = []string{"proxycommand", "localcommand", "knownhostscommand", "pkcs11provider", "smartcarddevice", "securitykeyprovider", "xauthlocation", "include"}

// flagsWithValue are the flags of ssh(1) that have a value. The value is the rest of the word with the flag, or the next word.
const flagsWithValue = "BDEFIJLOPQRSWbceilmopw" // -P only since OpenSSH 9.4

var keywordRE = regexp.MustCompile(`(?s)^[\s="]*([A-Za-z0-9]+)"?[\s=]*(.*)`)

// CheckPrograms returns an error if ssh, with the given options, could run a program on this computer. The options come from a hive, and
// the author of the hive may be another person. The user's own configuration file is not checked, even if the option -F names this file.
func CheckPrograms(options []string) error {
	for i := 0; i < len(options); i++ {
		at := strings.IndexAny(options[i], flagsWithValue)
		if !strings.HasPrefix(options[i], "-") || at < 0 {
			continue
		}
		flag, value := options[i][at], options[i][at+1:]
		if value == "" && i+1 < len(options) {
			value = options[i+1]
			if !strings.HasPrefix(value, "-") { // a value like a flag is checked as a flag, too
				i++
			}
		}
		switch flag {
		case 'o':
			if keyword := findProgram(value); keyword != "" {
				return fmt.Errorf("%s runs a program on this computer", keyword)
			}
		case 'I', 'E', 'P': // -I loads a library, -E writes a file, and old versions of ssh read the value of -P as other flags
			return fmt.Errorf("-%c %s can run a program on this computer", flag, value)
		case 'F':
			if err := checkConfigFile(value); err != nil {
				return fmt.Errorf("-F %s: %w", value, err)
			}
		}
	}
	return nil
}

// checkConfigFile returns an error if ssh could run a program because of a line in a configuration file. It does not
// check files in ~/.ssh and /etc/ssh.
func checkConfigFile(file string) error {
	home, _ := os.UserHomeDir()
	if slices.Contains([]string{filepath.Join(home, ".ssh"), "/etc/ssh"}, filepath.Dir(file)) {
		return nil
	}
	data, err := durable.Read(file, durable.ConfigSize)
	if errors.Is(err, fs.ErrNotExist) { // ssh reports the missing file, unless its name is none
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		if keyword := findProgram(line); keyword != "" {
			return fmt.Errorf("%s runs a program on this computer", keyword)
		}
	}
	return nil
}

// findProgram returns the keyword of a line of an ssh_config(5) file if ssh could run a program because of this line.
// Otherwise it returns "".
func findProgram(line string) string {
	m := keywordRE.FindStringSubmatch(strings.TrimSpace(line))
	if m == nil {
		return ""
	}
	switch keyword, value := strings.ToLower(m[1]), m[2]; {
	case keyword == "match" && strings.Contains(strings.ToLower(value), "exec"):
		return "Match exec"
	case slices.Contains(programKeywords, keyword) && value != "none":
		return m[1]
	}
	return ""
}
