package flux

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// maxHosts is the maximum number of hosts in a list of hosts. An instance has far fewer.
const maxHosts = 100_000

// wordForm matches the first word of a list of hosts, such as head or c-[1-3,07].
var wordForm = regexp.MustCompile(`^([^,\[]*)(?:\[([0-9,-]+)\]([^,\[]*))?(?:,|$)`)

// expandHosts returns the hosts of a list as Flux prints it (RFC 29 of Flux), such as head,c-[1-3,07].
func expandHosts(list string) ([]string, error) {
	var hosts []string
	for rest := list; rest != ""; {
		m := wordForm.FindStringSubmatch(rest)
		if m == nil || m[1]+m[2] == "" {
			return nil, fmt.Errorf("%q is no list of hosts", list)
		}
		rest = rest[len(m[0]):]
		if m[2] == "" {
			hosts = append(hosts, m[1])
			continue
		}
		for part := range strings.SplitSeq(m[2], ",") {
			first, last, isRange := strings.Cut(part, "-")
			if !isRange {
				last = first
			}
			from, err := strconv.ParseUint(first, 10, 32)
			to, err2 := strconv.ParseUint(last, 10, 32)
			if err != nil || err2 != nil || to < from || to-from > maxHosts || len(hosts) > maxHosts {
				return nil, fmt.Errorf("%q is no list of hosts: %s is no range", list, part)
			}
			for id := from; id <= to; id++ {
				hosts = append(hosts, fmt.Sprintf("%s%0*d%s", m[1], len(first), id, m[3]))
			}
		}
	}
	return hosts, nil
}
