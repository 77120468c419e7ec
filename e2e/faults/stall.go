package main

import (
	"os"
	"regexp"
	"strconv"
	"time"
)

// disturbing is the longest time for which all processes of this machine may wait for memory or disks while a
// seed runs. When the machine stands still for longer, nixbench and nodes exceed their time limits without a
// fault of theirs.
const disturbing = 15 * time.Second

var fullRE = regexp.MustCompile(`(?m)^full .* total=(\d+)$`)

// stallTime returns for how long all processes of this machine have waited for memory or disks since it
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
