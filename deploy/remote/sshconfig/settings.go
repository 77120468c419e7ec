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

// isNo reports whether a setting is off.
func (s settings) isNo(key string) bool {
	v := s.get(key)
	return v == "no" || v == "false" || v == "off"
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

// algorithms returns the words of a comma-separated setting.
func (s settings) algorithms(key string) []string {
	if v := s.get(key); v != "" {
		return strings.Split(v, ",")
	}
	return nil
}

// hop is one host of a ProxyJump.
type hop struct{ user, host, port string }

// parseHop parses [user@]host[:port] or ssh://[user@]host[:port].
func parseHop(text string) (hop, error) {
	bad := fmt.Errorf("cannot read the jump host %q", text)
	rest := strings.TrimSuffix(strings.TrimPrefix(text, "ssh://"), "/")
	var h hop
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if h.user, rest = rest[:at], rest[at+1:]; !isPlainUser(h.user) {
			return hop{}, bad
		}
	}
	switch {
	case strings.HasPrefix(rest, "["):
		host, after, ok := strings.Cut(rest[1:], "]")
		if !ok || after != "" && after[0] != ':' {
			return hop{}, bad
		}
		h.host, h.port = host, strings.TrimPrefix(after, ":")
		if after == ":" {
			return hop{}, bad
		}
	case strings.Count(rest, ":") == 1:
		h.host, h.port, _ = strings.Cut(rest, ":")
		if h.port == "" {
			return hop{}, bad
		}
	default: // no port, or a bare IPv6 address
		h.host = rest
	}
	if !isPlainWord(h.host) {
		return hop{}, bad
	}
	if h.port != "" {
		if n, err := strconv.Atoi(h.port); err != nil || n < 1 || n > 65535 {
			return hop{}, bad
		}
	}
	return h, nil
}
