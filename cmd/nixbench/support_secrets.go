package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
		if len(line) >= shortestLine && !strings.HasPrefix(line, "-----") {
			s = append(s, line)
			if quoted, err := json.Marshal(line); err == nil { // as in records of events
				s = append(s, string(quoted[1:len(quoted)-1]))
			}
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

func isText(data []byte) bool {
	return !slices.ContainsFunc(data, func(b byte) bool { return b > '~' || b < ' ' && b != '\n' && b != '\t' && b != '\r' })
}

// collectSecrets returns all secrets that nixbench knows: the files in the state folder, and deployment.keys. It returns
// an error if one of the files cannot be read, because then its content could not be hidden.
func collectSecrets(dir state.Dir, hive *nixeval.Hive) (secretTexts, error) {
	var out secretTexts
	var files []string
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
				out = out.add(key.Text.Reveal())
			}
			if key.KeyFile != nil {
				files = append(files, *key.KeyFile)
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
		out = out.add(string(data))
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
