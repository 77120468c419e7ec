package sshconfig

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// settings is the parsed output of `ssh -G`: lower-case keyword → its values. Some keywords occur more
// than once.
type settings map[string][]string

// parseSettings parses the output of `ssh -G`. A keyword without a value gets an empty value, and is no error, because
// the printed keywords differ between versions of ssh.
func parseSettings(out []byte) (settings, error) {
	s := settings{}
	scan := bufio.NewScanner(bytes.NewReader(out))
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		key, value, _ := strings.Cut(strings.TrimSpace(scan.Text()), " ")
		if key == "" {
			continue
		}
		key = strings.ToLower(key)
		s[key] = append(s[key], strings.TrimSpace(value))
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("cannot read the output of ssh -G: %w", err)
	}
	return s, nil
}

// get returns the first value of a keyword, or "".
func (s settings) get(key string) string {
	if len(s[key]) == 0 {
		return ""
	}
	return s[key][0]
}

// isYes reports whether a setting is on. Versions of ssh print "yes" or "true".
func (s settings) isYes(key string) bool {
	v := s.get(key)
	return v == "yes" || v == "true"
}

func (s settings) number(key string) (int, error) {
	v := s.get(key)
	if v == "" || v == "none" {
		return 0, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("ssh -G says %s %q, which is not a number", key, v)
	}
	return n, nil
}

// files returns the file names of a setting. ssh prints the names on one line without quotes. So if a word does not
// begin with /, ~, $ or %, files takes it for the rest of the previous file name, which contains a blank.
func (s settings) files(key string) []string {
	var files []string
	for _, word := range strings.Fields(s.get(key)) {
		if word == "none" {
			continue
		}
		if n := len(files); n > 0 && !strings.ContainsAny(word[:1], "/~$%") {
			files[n-1] += " " + word
			continue
		}
		files = append(files, word)
	}
	return files
}
