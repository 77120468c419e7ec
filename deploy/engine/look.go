package engine

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

// Inspector looks at the programs of an engine, which run as systemd units on its members. The node itself shows earlier than the
// cluster that a program does not work, and shows the reason.
type Inspector interface {
	// FindFaults returns what keeps the engine's programs on the node from working. It changes nothing.
	FindFaults(ctx context.Context, node string) ([]Fault, error)
	// ControlUnit starts or stops a systemd unit on a node; verb is a command of systemctl.
	ControlUnit(ctx context.Context, node, verb, unit string) error
	// Controllers returns the members that nixbench changes one at a time, such as control planes: all other members depend on them.
	Controllers() []string
}

// Fault is a systemd unit that does not work, a disk that is full, or the reason why a node could not be asked.
type Fault struct {
	Unit  string // empty unless the fault is a systemd unit
	State string
	Log   string // the last error in the log of the systemd unit; empty if it was stopped without an error
	Down  bool   // systemd does not start the systemd unit again by itself
	Runs  bool   // the systemd unit runs, but has ended repeatedly
	Lasts bool   // waiting rarely solves the problem
}

func (f Fault) String() string {
	return strings.TrimSpace(f.Unit+" "+f.State) + strings.TrimSuffix(": "+f.Log, ": ")
}

// Inspect returns an error unless the systemd units of the engine's programs on a node work. With runs, a systemd unit that runs
// now counts as working, even if it has ended repeatedly before.
func Inspect(ctx context.Context, e Inspector, node string, runs bool) error {
	faults, err := e.FindFaults(ctx, node)
	for _, f := range faults {
		if err == nil && f.Unit != "" && !(f.Runs && runs) {
			err = errors.New(f.String())
		}
	}
	return err
}

func (c Cluster) Controllers() []string {
	return c.nodesThat(func(m Member) bool { return m.OneByOne })
}

func (c Cluster) ControlUnit(ctx context.Context, node, verb, unit string) error {
	_, err := c.Command(ctx, node, "systemctl", verb, unit)
	return err
}

type UnitState struct {
	Sub   string    // systemd's sub-state of the unit, such as running, auto-restart or dead
	Since time.Time // when the systemd unit became active, in whole seconds
	Now   time.Time // the time on the node
}

func (c Cluster) ReadUnit(ctx context.Context, node, unit string) (UnitState, error) {
	const script = `date +now=%s; systemctl show --timestamp=unix --property=SubState,ActiveEnterTimestamp -- "$0"`
	out, err := c.Command(ctx, node, "sh", "-c", script, unit)
	p := ParseProperties(string(out))
	return UnitState{p["SubState"], unixTime(p["ActiveEnterTimestamp"]), unixTime(p["now"])}, err
}

// ReadLog returns the last lines that systemd units have logged on a node. Each line begins with the name of its systemd unit.
func (c Cluster) ReadLog(ctx context.Context, node string, units ...string) string {
	var lines []string
	for _, unit := range units {
		out, err := c.Command(ctx, node, "journalctl", "--no-pager", "--quiet", "--output=cat", "--lines="+logLines, "--unit="+unit)
		if err != nil { // the other logs of the node cannot be read either
			return strings.Join(append(lines, "  "+LastLine(err).Error()), "\n")
		}
		for line := range strings.Lines(strings.TrimSpace(string(out))) {
			lines = append(lines, "  "+strings.TrimSuffix(unit, ".service")+": "+strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}

const logLines = "10" // how many lines of each log an error quotes

// ParseProperties parses lines such as "NAME=value" or "NAME = value".
func ParseProperties(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, "="); ok {
			all[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return all
}

const (
	// restartTime is how long a systemd unit that systemd has started again must run until it counts as working. A program that
	// cannot work usually ends within seconds.
	restartTime = 10 * time.Second
	fullDisk    = 1024 // free space in KiB; a disk with less is full
	maxLogLine  = 300
)

// lookScript prints the states of systemd units. Unless all of them run, it then prints the time and the last lines of the units'
// own logs. At the end it prints the use of the disks. The size of its output is limited.
const lookScript = `{
  states=$(systemctl show --timestamp=unix --property=Id,LoadState,ActiveState,SubState,ConditionResult,ConditionTimestamp,NRestarts,ActiveEnterTimestamp,WantedBy,RequiredBy -- "$@")
  echo "$states"
  case $states in *SubState=[adfs]* | *NRestarts=[1-9]*)
    for unit; do
      echo; echo "Id=$unit"
      journalctl --quiet --no-pager --output=cat --lines=20 "_SYSTEMD_UNIT=$unit" | cut -c 1-600 | sed 's/^/log=/'
    done
    date +now=%s ;;
  esac
  timeout 3 df -Pkl -x squashfs -x erofs -x iso9660 -x efivarfs | sed 's/^/disk=/'
} 2> /dev/null | head -c 60000`

// FindFaults returns the systemd units that do not work, and the disks that are full, as the node reports them. A systemd unit is no
// fault if the node does not have it, if no other systemd unit wants it, or if one of its start conditions does not hold. A node that
// is not in the hive has no faults.
func (c Cluster) FindFaults(ctx context.Context, node string, units ...string) ([]Fault, error) {
	if len(units) == 0 || !c.Has(node) {
		return nil, nil
	}
	out, err := c.Command(ctx, node, append([]string{"sh", "-c", lookScript, "sh"}, units...)...)
	if err != nil {
		return nil, err
	}
	return parseFaults(string(out), units), nil
}

func parseFaults(text string, units []string) []Fault {
	properties, logs := map[string]map[string]string{}, map[string][]string{}
	var now time.Time
	var disks []Fault
	own, unit := map[string]string{}, ""
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case !ok:
			own = map[string]string{}
		case name == "now":
			now = unixTime(value)
		case name == "log":
			logs[unit] = append(logs[unit], value)
		case name == "disk":
			if f := strings.Fields(value); len(f) > 5 && isFull(f[1], f[3]) {
				disks = append(disks, Fault{State: fmt.Sprintf("the disk of %s is full", event.Printable(strings.Join(f[5:], " ")))})
			}
		case name == "Id" && properties[value] != nil:
			unit = value
		default:
			if own[name] = value; name == "Id" {
				properties[value] = own
			}
		}
	}
	var faults []Fault
	for _, unit := range units {
		if f := classify(properties[unit], now); f.State != "" {
			if f.Unit = unit; f.State != stopped {
				f.Log = LastError(logs[unit])
			}
			faults = append(faults, f)
		}
	}
	return append(faults, disks...)
}

const stopped = "is stopped"

// classify returns the fault of a systemd unit with these properties, or a fault without a state if the unit works.
func classify(p map[string]string, now time.Time) Fault {
	isWanted := p["WantedBy"]+p["RequiredBy"] != "" && (p["ConditionResult"] != "no" || p["ConditionTimestamp"] == "")
	switch active, sub := p["ActiveState"], p["SubState"]; {
	case p["LoadState"] != "loaded":
		return Fault{}
	case active == "failed":
		return Fault{State: "is failed", Down: true, Lasts: true}
	case strings.HasPrefix(sub, "auto-restart"), active == "active" && p["NRestarts"] != "0" && now.Sub(unixTime(p["ActiveEnterTimestamp"])) < restartTime:
		return Fault{State: "ends again and again", Runs: active == "active", Lasts: true}
	case active == "inactive" && isWanted:
		return Fault{State: stopped, Down: true, Lasts: true}
	case active == "activating", active == "deactivating":
		return Fault{State: "is " + active + " (" + sub + ")"}
	}
	return Fault{}
}

func isFull(size, free string) bool {
	kib, err := strconv.Atoi(free)
	all, _ := strconv.Atoi(size)
	return err == nil && kib < fullDisk && all > fullDisk
}

// unixTime parses a time such as @1795363543. For any other text it returns the start of 1970.
func unixTime(text string) time.Time {
	seconds, _ := strconv.ParseInt(strings.TrimPrefix(text, "@"), 10, 64)
	return time.Unix(seconds, 0)
}

var (
	// klogPrefix matches the prefix of an error in the log of a Kubernetes program, such as "E1122 04:05:06.789012   1234 kubelet.go:1] ".
	klogPrefix = regexp.MustCompile(`^[EF]\d{4} [0-9:.]+\s+\d+ (\S+\] )?`)
	errorWord  = regexp.MustCompile(`\b([Ff]atal|[Ee]rror): `)
)

// LastError returns the last error in a log, or the last line if the log has no error. The text has a limited length and no control characters.
func LastError(lines []string) string {
	text, isError := "", false
	for _, line := range lines {
		line = strings.TrimSpace(line)
		prefix := klogPrefix.FindString(line)
		now := prefix != "" || errorWord.MatchString(line)
		if line != "" && (now || !isError) {
			text, isError = strings.TrimPrefix(line, prefix), now
		}
	}
	if text = event.Printable(text); len(text) > maxLogLine {
		text = strings.ToValidUTF8(text[:maxLogLine], "") + "…"
	}
	return text
}

type NodeFaults struct {
	Node   string
	Faults []Fault // if the node could not be asked, the only one says why
}

// LookAll looks at nodes and at the controllers of an engine, and returns the nodes with faults.
func LookAll(ctx context.Context, e Inspector, nodes []string) []NodeFaults {
	var all []nixeval.Node
	for _, node := range slices.Concat(nodes, e.Controllers()) {
		if !slices.ContainsFunc(all, func(n nixeval.Node) bool { return n.Name == node }) {
			all = append(all, nixeval.Node{Name: node})
		}
	}
	var out []NodeFaults
	for _, o := range fleet.Each(ctx, all, maxLooks, func(ctx context.Context, n nixeval.Node) ([]Fault, error) { return e.FindFaults(ctx, n.Name) }) {
		if o.Err != nil {
			first, _, _ := strings.Cut(failure.TextOn(o.Node.Name, o.Err), "\n")
			o.Value = []Fault{{State: first}}
		}
		if len(o.Value) > 0 {
			out = append(out, NodeFaults{o.Node.Name, o.Value})
		}
	}
	return out
}

const maxLooks = 16 // maximum number of nodes that nixbench looks at at the same time

// LookAt returns a function that looks at the given nodes and at the controllers of an engine (such as its control planes).
func LookAt(e Inspector, nodes ...string) check.Look {
	return func(ctx context.Context) (string, bool) { return DescribeFaults(e, nodes, LookAll(ctx, e, nodes)) }
}

// DescribeFaults returns a text about the faults of the given nodes, and of the controllers on which the nodes depend. lasts
// means that waiting for these nodes rarely helps.
func DescribeFaults(e Inspector, nodes []string, all []NodeFaults) (text string, lasts bool) {
	controllers := e.Controllers()
	var texts []string
	for _, n := range all {
		var parts []string
		for _, f := range n.Faults {
			parts = append(parts, f.String())
			lasts = lasts || f.Lasts && (slices.Contains(nodes, n.Node) || len(controllers) == 1)
		}
		texts = append(texts, n.Node+": "+strings.Join(parts, "; "))
	}
	return event.Abbreviate(texts, "; "), lasts
}
