package main

import (
	"os"
	"regexp"
	"strconv"
	"time"
)

// disturbing is for how long everything on this machine may wait for memory or disks while a seed runs. The
// limits of nixbench and of nodes mean nothing on a machine that stands still.
const disturbing = 15 * time.Second

var fullRE = regexp.MustCompile(`(?m)^full .* total=(\d+)$`)

// stalled is how long everything on this machine has waited for memory or disks since it booted, as the
// kernel counts it; 0 where it does not count.
func stalled() time.Duration {
	var longest time.Duration
	for _, file := range []string{"/proc/pressure/memory", "/proc/pressure/io"} {
		text, err := os.ReadFile(file)
		if err == nil {
			longest = max(longest, parseStalled(string(text)))
		}
	}
	return longest
}

func parseStalled(text string) time.Duration {
	m := fullRE.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	micro, _ := strconv.ParseInt(m[1], 10, 64)
	return time.Duration(micro) * time.Microsecond
}
