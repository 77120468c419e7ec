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

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// secrets returns, by name, the texts that may occur only in the folder of secrets and in the hive: the text in the hive, and a private part
// of each key that nixbench has generated.
func (s *sandbox) secrets() map[string]string {
	all := map[string]string{"deployment.keys.token": s.token}
	for path, text := range read(s.state("secrets")) {
		all[strings.TrimPrefix(path, s.state("")+"/")] = privatePart(text)
	}
	return all
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

// leaks returns a problem for each secret that is in one of the texts. The keys are the names of secrets and of files.
func leaks(secrets, texts map[string]string) []string {
	var wrong []string
	for name, secret := range secrets {
		for where, text := range texts {
			if strings.Contains(text, secret) {
				wrong = append(wrong, fmt.Sprintf("secrets: %s is in %s", name, where))
			}
		}
	}
	return wrong
}

// checkSecrets returns a problem for each secret in the output, records or logs of nixbench or libvirt. To show that the
// search works, it must also find all secrets in the folder of secrets and in the hive.
func (s *sandbox) checkSecrets() []string {
	all, places := s.secrets(), read(s.state("secrets"))
	maps.Copy(places, read(filepath.Join(s.dir, "hive.nix")))
	for name, text := range all {
		if len(text) < 16 || leaks(map[string]string{name: text}, places) == nil {
			return []string{fmt.Sprintf("secrets: the search does not find %s in the folder of secrets or the hive", name)}
		}
	}
	if len(all) < 2 {
		return []string{"secrets: nixbench has made none"}
	}
	texts := map[string]string{}
	for _, root := range []string{filepath.Join(s.lab.Dir, "log"), s.state("runs"), s.state("state.json"), s.state("runtime.json"), s.state("known_hosts")} {
		maps.Copy(texts, read(root))
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
