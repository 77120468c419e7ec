package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// secretTexts are texts that must not be in a file for others, the longest first.
type secretTexts []string

// hide replaces each secret in text.
func (s secretTexts) hide(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "(secret)")
	}
	return text
}

const (
	shortestLine = 6  // a shorter line of a secret, such as a brace, is no secret
	shortestWord = 16 // a shorter word of a secret with several words is no secret, because it may be a name
)

// add adds the lines of a secret, and their long words. A word that is base64 is added as the text that it encodes, too:
// the files of generated secrets and kubeconfigs contain base64.
func (s secretTexts) add(text string) secretTexts {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "-----") {
			s = s.addValue(line)
		}
		for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\"',:{}[]", r) }) {
			if len(word) < shortestWord {
				continue
			}
			s = append(s, word)
			if decoded, err := base64.StdEncoding.DecodeString(word); err == nil && isText(decoded) {
				s = s.add(string(decoded))
			}
		}
	}
	return s
}

// addValue adds a text without line breaks, and the text as it appears in JSON, such as in records of events.
func (s secretTexts) addValue(value string) secretTexts {
	if len(value) < shortestLine {
		return s
	}
	s = append(s, value)
	if quoted, err := json.Marshal(value); err == nil {
		s = append(s, string(quoted[1:len(quoted)-1]))
	}
	return s
}

// valueREs find the values in a line of a key: a file of environment variables, YAML, a connection string, a URL, or a list of fields.
var valueREs = []*regexp.Regexp{
	regexp.MustCompile(`^[^=]*=(.*)$`),
	regexp.MustCompile(`=\s*([^\s;&,]+)`),
	regexp.MustCompile(`^[^:]*:\s+(.*)$`),
	regexp.MustCompile(`:([^:\s]+)$`),
	regexp.MustCompile(`[^\s:/@"'=]*:([^\s/@"']+)@`), // user:password@host
	regexp.MustCompile(`https?://([^\s:/@"']+)@`),    // token@host
	regexp.MustCompile(`(?i)(?:password|passphrase|secret|token|key)\s+(\S+)`),
}

// addKey is like add, and also adds the values in the text, however short their words are: a program prints a password without the name
// of its variable. It is meant for the user's keys. The files of nixbench contain values that are no secrets, such as those of a
// kubeconfig, and their secrets are long.
func (s secretTexts) addKey(text string) secretTexts {
	s = s.add(text)
	for line := range strings.Lines(text) {
		for _, re := range valueREs {
			for _, m := range re.FindAllStringSubmatch(strings.TrimSpace(line), -1) {
				value := strings.TrimSpace(strings.TrimRight(m[1], ",; \t"))
				s = s.addValue(value).addValue(strings.Trim(value, `"'`))
				if decoded, err := url.PathUnescape(value); err == nil {
					s = s.addValue(decoded)
				}
			}
		}
	}
	var document any
	if json.Unmarshal([]byte(text), &document) == nil {
		s = s.addStrings(document)
	}
	return s
}

// addStrings adds the strings in a JSON document, without the names of its fields.
func (s secretTexts) addStrings(document any) secretTexts {
	switch v := document.(type) {
	case string:
		return s.addValue(v)
	case []any:
		for _, one := range v {
			s = s.addStrings(one)
		}
	case map[string]any:
		for _, one := range v {
			s = s.addStrings(one)
		}
	}
	return s
}

// describeUnknownKeys returns why nixbench does not have the keys of all nodes, so that it cannot hide them in logs and records. It
// returns "" if it has them.
func describeUnknownKeys(hive *nixeval.Hive) string {
	unknown := map[string]bool{}
	for _, broken := range []map[string]*nixeval.NixError{hive.Broken, hive.BrokenKeys} {
		for unit := range broken {
			unknown[unit] = true
		}
	}
	if len(unknown) == 0 {
		return ""
	}
	return "the records of runs and the journals are left out: the options of " + strings.Join(sortedNames(unknown), ", ") +
		" cannot be evaluated, so nixbench does not have their keys, and could not hide them"
}

func isText(data []byte) bool {
	return !slices.ContainsFunc(data, func(b byte) bool { return b > '~' || b < ' ' && b != '\n' && b != '\t' && b != '\r' })
}

// collectSecrets returns all secrets that nixbench knows: the files in the state folder, and deployment.keys. It returns
// an error if one of the files cannot be read, because then its content could not be hidden.
func collectSecrets(dir state.Dir, hive *nixeval.Hive) (secretTexts, error) {
	var out secretTexts
	var files []string
	keyFiles := map[string]bool{}
	err := filepath.WalkDir(filepath.Dir(dir.ClientKey()), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, name := range accessFiles() {
		files = append(files, dir.AccessFile(name))
	}
	for _, u := range hive.Units {
		for _, key := range u.Deployment.Keys {
			if key.Text != nil {
				out = out.addKey(key.Text.Reveal())
			}
			if key.KeyFile != nil {
				files = append(files, *key.KeyFile)
				keyFiles[*key.KeyFile] = true
			}
		}
	}
	for _, file := range files {
		data, err := durable.Read(file, durable.RecordSize)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, os.ErrPermission) && !strings.HasPrefix(file, string(dir)) {
			continue // a key file that this user cannot read was not uploaded by this user either
		}
		if err != nil {
			return nil, err
		}
		if keyFiles[file] {
			out = out.addKey(string(data))
		} else {
			out = out.add(string(data))
		}
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	return slices.Compact(out), nil
}

// hiveStructure is a hive without values that may be secret.
type hiveStructure struct {
	Name  string                   `json:"name"`
	Roles map[string]roleStructure `json:"roles"`
	Nodes []nodeStructure          `json:"nodes"`
}

type roleStructure struct {
	Count  int    `json:"count"`
	VCPUs  int    `json:"vcpus"`
	Memory string `json:"memory"`
	Disk   string `json:"disk"`
}

type nodeStructure struct {
	nixeval.Node
	Engine     string   `json:"engine,omitempty"`
	EngineRole string   `json:"engineRole,omitempty"`
	Keys       []string `json:"keys"`
}

func describeHive(hive *nixeval.Hive) hiveStructure {
	out := hiveStructure{Name: hive.ClusterName(), Roles: map[string]roleStructure{}}
	for name, r := range hive.Roles {
		out.Roles[name] = roleStructure{r.Count, r.VCPUs, r.Memory, r.Disk}
	}
	for _, n := range hive.Nodes {
		s := nodeStructure{Node: n, Keys: []string{}}
		if u := hive.Unit(n.Unit); u != nil {
			s.Keys = append(s.Keys, sortedNames(u.Deployment.Keys)...)
			if engine := u.Deployment.Engine; engine != nil {
				s.Engine, s.EngineRole = engine.Kind, engine.Role
			}
		}
		out.Nodes = append(out.Nodes, s)
	}
	return out
}
