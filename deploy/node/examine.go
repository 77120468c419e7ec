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

// examineScript prints the time of the node, and a line for each folder to which a deployment writes. The line contains whether
// the folder can be written, its free and total KiB, its free and total inodes, and its mount point.
const examineScript = `date +%s
for folder in / /nix/var /run /tmp /var /boot; do
  [ -d "$folder" ] || continue
  mode=rw
  [ "$(id -u)" != 0 ] || [ -w "$folder" ] || mode=ro # another user may lack the permission
  df -Pk "$folder" | { read -r _; read -r _ size _ free _ place
    df -Pi "$folder" | { read -r _; read -r _ inodes _ left _; echo "$mode $free $size $left $inodes $place"; }; }
done`

// Limits for the free space of a file system and the error of a clock. Beyond them, AddCause adds a hint.
const (
	littleSpace = 16 << 10 // in KiB; systemd refuses to reload its units if /run has less space left
	wrongClock  = 5 * time.Minute
)

// AddCause adds a hint to the error of a failed step on a node, such as a full or read-only file system, or a wrong clock. A
// program that fails for one of these reasons often does not name the reason. If err already has a hint, or the node does not
// answer, AddCause returns err unchanged.
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

// readFindings parses the output of examineScript, and returns a text for each problem, such as a full file system. Several folders
// may be on one file system.
func readFindings(out string, now time.Time) []string {
	var found []string
	clock, rest, _ := strings.Cut(out, "\n")
	for line := range strings.Lines(rest) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		place, fix := strings.Join(f[5:], " "), "remove files"
		switch place {
		case "/run":
			fix = "remove files, or reboot the node, which empties it"
		case "/", "/nix", "/boot":
			fix = "remove files, or old generations with nix-collect-garbage -d"
		}
		text := ""
		switch free, size, inodes := parseNumber(f[1]), parseNumber(f[2]), parseNumber(f[3]); {
		case f[0] == "ro":
			text = place + " is read-only"
		case free < littleSpace && size > 0:
			text = fmt.Sprintf("%s is full or nearly so: %d KiB of %d KiB are free (%s)", place, free, size, fix)
		case inodes == 0 && parseNumber(f[4]) > 0:
			text = fmt.Sprintf("%s has no free inodes (%s)", place, fix)
		}
		if text != "" && !slices.Contains(found, text) {
			found = append(found, text)
		}
	}
	if seconds, err := strconv.ParseInt(clock, 10, 64); err == nil {
		if off := time.Unix(seconds, 0).Sub(now).Round(time.Second); off.Abs() > wrongClock {
			found = append(found, fmt.Sprintf("its clock is %s off (it is %s there)", off.Abs(), time.Unix(seconds, 0).UTC().Format(time.RFC3339)))
		}
	}
	return found
}

// parseNumber parses a number that df has printed. For a file system without a limit df prints "-": parseNumber then returns the
// largest int64.
func parseNumber(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return math.MaxInt64
	}
	return n
}
