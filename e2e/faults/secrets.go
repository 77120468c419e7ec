package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// secret is a text that may occur only in the folder of secrets and in the hive.
type secret struct{ name, text string }

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// secrets returns the secret text in the hive (deployment.keys.token), and a private part of each key that nixbench has generated.
func (s *sandbox) secrets() ([]secret, error) {
	all := []secret{{"deployment.keys.token", s.token}}
	root := s.state("secrets")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		all = append(all, secret{"secrets/" + name, privatePart(string(text))})
		return nil
	})
	return all, err
}

// privatePart returns a line of a private key (text) that is not part of the public key. The first line of an
// OpenSSH key is the same for all keys, and the second one contains the public key.
func privatePart(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if strings.HasPrefix(text, "-----BEGIN") && len(lines) >= 5 {
		return lines[len(lines)-3]
	}
	return strings.TrimSpace(text)
}

// leaks returns a problem for each secret that is in one of the texts. The keys of texts are file names.
func leaks(all []secret, texts map[string]string) []string {
	var wrong []string
	for _, one := range all {
		for where, text := range texts {
			if strings.Contains(text, one.text) {
				wrong = append(wrong, fmt.Sprintf("secrets: %s is in %s", one.name, where))
			}
		}
	}
	return wrong
}

// checkSecrets returns a problem for each secret in the output, records or logs of nixbench or libvirt. To show that the
// search works, it must also find all secrets in the folder of secrets and in the hive.
func (s *sandbox) checkSecrets() []string {
	all, err := s.secrets()
	if err != nil {
		return []string{fmt.Sprintf("secrets: %v", err)}
	}
	hive, err := os.ReadFile(filepath.Join(s.dir, "hive.nix"))
	if err != nil {
		return []string{fmt.Sprintf("secrets: %v", err)}
	}
	places := read(s.state("secrets"))
	places["hive.nix"] = string(hive)
	for _, one := range all {
		if len(one.text) < 16 || leaks([]secret{one}, places) == nil {
			return []string{fmt.Sprintf("secrets: the search does not find %s in the folder of secrets or the hive", one.name)}
		}
	}
	if len(all) < 2 {
		return []string{"secrets: nixbench has made none"}
	}
	texts := read(s.state("runs"))
	for _, more := range []map[string]string{read(filepath.Join(s.lab.Dir, "log")), read(s.state("state.json")), read(s.state("runtime.json")), read(s.state("known_hosts"))} {
		maps.Copy(texts, more)
	}
	for i, text := range s.output {
		texts[fmt.Sprintf("output %d", i)] = text
	}
	return leaks(all, texts)
}

// read returns, by path, the content of the file root, or of all files below the folder root.
func read(root string) map[string]string {
	texts := map[string]string{}
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			text, _ := os.ReadFile(path)
			texts[path] = string(text)
		}
		return nil
	})
	return texts
}
