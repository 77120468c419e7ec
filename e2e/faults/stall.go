package main

import (
	"os"
	"regexp"
	"strconv"
	"time"
)

// disturbing is the longest time for which all processes of this computer may wait for memory or disks while the test of a
// seed runs. If this computer stands still for longer, nixbench and the nodes exceed their time limits without an error in
// nixbench.
const disturbing = 15 * time.Second

var fullRE = regexp.MustCompile(`(?m)^full .* total=(\d+)$`)

// stallTime returns for how long all processes of this computer have waited for memory or disks since this computer
// booted. It is 0 if the kernel does not count this time.
func stallTime() time.Duration {
	var longest time.Duration
	for _, file := range []string{"/proc/pressure/memory", "/proc/pressure/io"} {
		text, err := os.ReadFile(file)
		if err == nil {
			longest = max(longest, parseStallTime(string(text)))
		}
	}
	return longest
}

func parseStallTime(text string) time.Duration {
	m := fullRE.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	micro, _ := strconv.ParseInt(m[1], 10, 64)
	return time.Duration(micro) * time.Microsecond
}
