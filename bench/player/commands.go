package player

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Place says on which nodes a player runs its commands.
type Place struct {
	Commands  string `json:"commands"`  // the node on which the player runs the commands that submit and observe jobs
	Scheduler string `json:"scheduler"` // the node of the scheduler, where the player runs commands, too
}

// Commander is an optional interface of a player that runs commands on nodes of the cluster.
type Commander interface {
	Place() Place
	// CommandUsage returns the processor time that the commands of the player have used on the node of the scheduler.
	CommandUsage(ctx context.Context) (CommandUsage, error)
}

// CommandUsage is the processor time that all commands over one SSH connection have used on a node.
type CommandUsage struct {
	Connection int     // process id of sshd for this connection; for another connection, CPU counts from zero
	CPU        float64 // processor seconds of the commands and of sshd since the connection began
}

// commandScript prints the file /proc/PID/stat of its own process and of each parent up to the sshd of the connection. All
// commands of the connection are children of that sshd.
const commandScript = `pid=$$
while [ "$pid" -gt 1 ]; do
	read -r stat < "/proc/$pid/stat" || exit
	printf '%s\n' "$stat"
	case $stat in *"(sshd"*) exit ;; esac
	set -- ${stat##*) }
	pid=$2
done
echo "no parent of the command is sshd" >&2
exit 1
`

// ReadCommandUsage returns the processor time that commands have used on a node. run runs a command on a node.
func ReadCommandUsage(ctx context.Context, run func(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error), node string) (CommandUsage, error) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	out, err := run(ctx, node, strings.NewReader(commandScript), "sh", "-s")
	if err != nil {
		return CommandUsage{}, fmt.Errorf("%s: read the processor time of commands: %w", node, err)
	}
	usage, err := sumStats(string(out))
	if err != nil {
		return CommandUsage{}, fmt.Errorf("%s: read the processor time of commands: %w", node, err)
	}
	return usage, nil
}

// sumStats returns the processor time of processes and of their children that have ended. text contains the file /proc/PID/stat
// of each process. The last process is the sshd of the connection.
func sumStats(text string) (CommandUsage, error) {
	var u CommandUsage
	for line := range strings.Lines(text) {
		cpu, err := ParseStat(strings.TrimSpace(line), true)
		if err != nil {
			return CommandUsage{}, err
		}
		u.CPU += cpu
		number, _, _ := strings.Cut(line, " ")
		if u.Connection, err = strconv.Atoi(number); err != nil {
			return CommandUsage{}, fmt.Errorf("unexpected line %.100q", line)
		}
	}
	if u.Connection == 0 {
		return u, errors.New("the node printed no process")
	}
	return u, nil
}

// ParseStat returns the processor seconds in stat, the file /proc/PID/stat of a process. With children, the result includes the
// children that have ended. The fields after the name in parentheses begin with the third; utime, stime, cutime and cstime are
// the 14th to the 17th, in ticks of 10 ms.
func ParseStat(stat string, children bool) (float64, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	last := 12
	if children {
		last = 14
	}
	if len(fields) <= last {
		return 0, fmt.Errorf("unexpected line %.100q", stat)
	}
	ticks := int64(0)
	for _, f := range fields[11 : last+1] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("unexpected line %.100q", stat)
		}
		ticks += n
	}
	return float64(ticks) / 100, nil
}
