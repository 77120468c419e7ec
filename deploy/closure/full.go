package closure

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/remote"
)

// diskFullHint returns the hint for a full disk: the file system of the node's store, its free space or
// inodes, and the space that the rest of the copy needs. need is in bytes.
func diskFullHint(ctx context.Context, conn *remote.Conn, need int64) string {
	again := ", then run again: copied paths are kept"
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := conn.Output(ctx, remote.Cmd{Argv: []string{"sh", "-c", "df -Pk /nix/store | tail -n 1; df -Pi /nix/store | tail -n 1"}})
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) != 2 {
		return "free space in the node's /nix/store: nix-collect-garbage -d" + again
	}
	place, free := parseDfLine(lines[0])
	_, inodes := parseDfLine(lines[1])
	text := fmt.Sprintf("the file system of /nix/store (%s) has %s left, and %s must still be copied", place, formatSize(free<<10), formatSize(need))
	if free<<10 > need && inodes == 0 {
		text = fmt.Sprintf("the file system of /nix/store (%s) has no inodes left", place)
	}
	return text + ": free space on the node, for example with nix-collect-garbage -d" + again
}

// parseDfLine parses a line of df -P. It returns the mount point, and the number in the fourth column: the free KiB, or
// for df -i the free inodes.
func parseDfLine(line string) (place string, free int64) {
	f := strings.Fields(line)
	if len(f) < 6 {
		return "unknown", 0
	}
	free, _ = strconv.ParseInt(f[3], 10, 64) // "-" if there is no limit
	return strings.Join(f[5:], " "), free
}

func formatSize(bytes int64) string {
	switch {
	case bytes >= 10<<30:
		return fmt.Sprintf("%d GiB", bytes>>30)
	case bytes >= 10<<20:
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d KiB", (bytes+1023)>>10)
}
