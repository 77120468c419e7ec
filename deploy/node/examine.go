package node

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
)

// examineScript prints the time of the node, and a line for each folder that a deployment writes to: whether it can be written,
// its free and total KiB, its free and total inodes, and its mount point.
const examineScript = `date +%s
for folder in / /nix/var /run /tmp /var /boot; do
  [ -d "$folder" ] || continue
  mode=rw
  [ "$(id -u)" != 0 ] || [ -w "$folder" ] || mode=ro # another user may lack the permission
  df -Pk "$folder" | { read -r _; read -r _ size _ free _ place
    df -Pi "$folder" | { read -r _; read -r _ inodes _ left _; echo "$mode $free $size $left $inodes $place"; }; }
done`

// Limits below which examine reports a file system or a clock.
const (
	littleSpace = 16 << 10 // in KiB; systemd refuses to reload its units if /run has less space left
	wrongClock  = 5 * time.Minute
)

// AddCause adds a hint to the error of a failed step on a node: file systems of the node that are full or read-only, and a
// wrong clock. A program that fails for one of these reasons often does not name it. If the error already has a hint, or the
// node cannot be asked, AddCause returns err.
func AddCause(ctx context.Context, f *fleet.Fleet, node string, err error) error {
	if err == nil || ctx.Err() != nil || failure.Hint(err) != "" || slices.Contains([]failure.Kind{failure.Unreachable, failure.Lost}, failure.KindOf(err)) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, failed := f.Run(ctx, node, nil, "sh", "-c", examineScript)
	if failed != nil {
		return err
	}
	found := readFindings(string(out), time.Now())
	if len(found) == 0 {
		return err
	}
	return failure.WithHint(err, fmt.Sprintf("%s: %s; mend this and run the command again", node, strings.Join(found, ", ")))
}

// readFindings returns what is wrong according to the output of examineScript.
func readFindings(out string, now time.Time) []string {
	var found []string
	add := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(found, text) { // several folders may be on one file system
			found = append(found, text)
		}
	}
	clock, rest, _ := strings.Cut(out, "\n")
	for line := range strings.Lines(rest) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		place := strings.Join(f[5:], " ")
		fix := "remove files"
		switch place {
		case "/run":
			fix = "remove files, or reboot the node, which empties it"
		case "/", "/nix", "/boot":
			fix = "remove files, or old generations with nix-collect-garbage -d"
		}
		switch free, size, inodes := parseNumber(f[1]), parseNumber(f[2]), parseNumber(f[3]); {
		case f[0] == "ro":
			add("%s is read-only", place)
		case free < littleSpace && size > 0:
			add("%s is full or nearly so: %d KiB of %d KiB are free (%s)", place, free, size, fix)
		case inodes == 0 && parseNumber(f[4]) > 0:
			add("%s has no free inodes (%s)", place, fix)
		}
	}
	if seconds := parseNumber(clock); seconds != math.MaxInt64 {
		if off := time.Unix(seconds, 0).Sub(now).Round(time.Second); off.Abs() > wrongClock {
			add("its clock is %s off (it is %s there)", off.Abs(), time.Unix(seconds, 0).UTC().Format(time.RFC3339))
		}
	}
	return found
}

// parseNumber returns a number that df has printed, or the largest int64 for "-", which df prints for a file system without a
// limit.
func parseNumber(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return math.MaxInt64
	}
	return n
}
