package flux

import (
	"fmt"
	"strconv"
	"strings"
)

// maxHosts is the maximum number of hosts of a list, far more than an instance has.
const maxHosts = 100_000

// expandHosts returns the hosts of a list as Flux prints it (RFC 29 of Flux), such as head,c-[1-3,07].
func expandHosts(list string) ([]string, error) {
	var hosts []string
	for rest := list; rest != ""; {
		var word string
		if word, rest = cutWord(rest); word == "" {
			return nil, fmt.Errorf("%q is no list of hosts", list)
		}
		prefix, tail, compressed := strings.Cut(word, "[")
		if !compressed {
			hosts = append(hosts, word)
			continue
		}
		ids, suffix, closed := strings.Cut(tail, "]")
		if !closed {
			return nil, fmt.Errorf("%q is no list of hosts: a ] is missing", word)
		}
		for part := range strings.SplitSeq(ids, ",") {
			first, last, isRange := strings.Cut(part, "-")
			if !isRange {
				last = first
			}
			from, err := strconv.ParseUint(first, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("%q is no list of hosts: %w", word, err)
			}
			to, err := strconv.ParseUint(last, 10, 32)
			if err != nil || to < from || to-from > maxHosts || len(hosts) > maxHosts {
				return nil, fmt.Errorf("%q is no list of hosts: %s is no range", word, part)
			}
			for id := from; id <= to; id++ {
				hosts = append(hosts, fmt.Sprintf("%s%0*d%s", prefix, len(first), id, suffix))
			}
		}
	}
	return hosts, nil
}

// cutWord returns the text before the first comma that is not in brackets, and the text after it.
func cutWord(list string) (word, rest string) {
	inBrackets := false
	for i, c := range list {
		switch {
		case c == '[':
			inBrackets = true
		case c == ']':
			inBrackets = false
		case c == ',' && !inBrackets:
			return list[:i], list[i+1:]
		}
	}
	return list, ""
}
