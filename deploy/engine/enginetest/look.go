package enginetest

import (
	"fmt"
	"strings"
)

// AnswerLook answers the command with which an engine looks at the systemd units of a node. The second result is false if argv is
// another command. sub returns the sub-state of a systemd unit, such as running, or nothing if the node does not have the systemd
// unit. log is the log of each systemd unit. full contains the names of disks that are full.
func AnswerLook(argv []string, sub func(unit string) string, log string, full ...string) ([]byte, bool) {
	if len(argv) < 5 || argv[0] != "sh" || argv[3] != "sh" || !strings.Contains(argv[2], "ActiveEnterTimestamp") {
		return nil, false
	}
	var b strings.Builder
	b.WriteString("now=2000\n")
	for _, unit := range argv[4:] {
		state, load, restarts := sub(unit), "loaded", 0
		active := map[string]string{"running": "active", "dead": "inactive", "failed": "failed"}[state]
		switch {
		case state == "":
			load, active, state = "not-found", "inactive", "dead"
		case active == "":
			active, restarts = "activating", 7
		}
		fmt.Fprintf(&b, "Id=%s\nLoadState=%s\nActiveState=%s\nSubState=%s\nNRestarts=%d\nConditionResult=yes\nActiveEnterTimestamp=@1000\nWantedBy=multi-user.target\n\n", unit, load, active, state, restarts)
	}
	for _, unit := range argv[4:] {
		fmt.Fprintf(&b, "\nId=%s\nlog=%s\n", unit, log)
	}
	b.WriteString("disk=/dev/vda 1000000 500000 500000 50% /\n")
	for _, name := range full {
		fmt.Fprintf(&b, "disk=/dev/vdb 1000000 1000000 0 100%% %s\n", name)
	}
	return []byte(b.String()), true
}
