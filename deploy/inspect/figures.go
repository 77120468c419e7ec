package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

// Figures are the sizes of a node's processors, memory and disk, and their use, as the node itself reports them.
type Figures struct {
	Processors int `json:"processors"`
	// ProcessorsUsed is the average number of processors that were busy during the measurement, from 0 to Processors. It is nil
	// if the node's kernel does not count the time of its control group.
	ProcessorsUsed *float64 `json:"processorsUsed,omitempty"`
	Memory         int64    `json:"memory"`     // bytes
	MemoryUsed     int64    `json:"memoryUsed"` // bytes that programs cannot get
	Disk           int64    `json:"disk"`       // bytes of the file system of /, or of /nix/store if it is fuller
	DiskUsed       int64    `json:"diskUsed"`
}

// figuresScript prints the figures of a node as JSON. It reads the processor time of the node's control group, because /proc/stat in
// a container contains the processor time of the host.
const figuresScript = `
busy() { # the processor time in µs, if it is known, and the uptime in 1/100 s
  read -r now _ </proc/uptime
  if [ -r /sys/fs/cgroup/cpu.stat ]; then
    while read -r name value; do [ "$name" != usage_usec ] || echo "$value ${now%.*}${now#*.}"; done </sys/fs/cgroup/cpu.stat
  elif read -r value </sys/fs/cgroup/cpuacct/cpuacct.usage; then
    echo "$((value / 1000)) ${now%.*}${now#*.}"
  fi
} 2>/dev/null
set -- $(busy)
sleep 0.5
set -- "$@" $(busy)
[ $# != 4 ] || used=$((($3 - $1) / ($4 - $2) / 10)) # thousandths of a processor
while read -r name value _; do
  case $name in MemTotal:) memory=$value ;; MemAvailable:) available=$value ;; esac
done </proc/meminfo
set -- $(df -Pk / /nix/store 2>/dev/null | while read -r _ _ used free _; do
  case $used in *[!0-9]*) ;; *) echo "$((used * 1000 / (used + free + 1))) $used $free" ;; esac
done | sort -n | tail -n 1)
printf '{"processors": %d, "memory": %d, "memoryUsed": %d, "disk": %d, "diskUsed": %d' \
  "$(nproc)" $((memory << 10)) $(((memory - available) << 10)) $(((${2:-0} + ${3:-0}) << 10)) $((${2:-0} << 10))
[ -z "$used" ] || printf ', "processorsUsed": %d.%03d' $((used / 1000)) $((used % 1000))
echo '}'
`

// ReadFigures returns the figures of a node. It runs one command on the node, for half a second.
func ReadFigures(ctx context.Context, f *fleet.Fleet, n nixeval.Node) (*Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	text, err := f.Run(ctx, n.Name, nil, "sh", "-c", figuresScript)
	if err != nil {
		return nil, err
	}
	return parseFigures(string(text))
}

// maxFigures is the maximal size of the output of figuresScript in bytes; more is ignored.
const maxFigures = 64 << 10

// parseFigures parses the output of figuresScript.
func parseFigures(text string) (*Figures, error) {
	var out Figures
	err := json.Unmarshal([]byte(text[:min(len(text), maxFigures)]), &out)
	if err != nil || out.Processors < 1 || out.Memory < 1 || min(out.MemoryUsed, out.Disk, out.DiskUsed) < 0 {
		return nil, fmt.Errorf("the node's figures are invalid: %.200q", text)
	}
	if used := out.ProcessorsUsed; used != nil { // the clock of the measurement is coarse, and a node can report anything
		*used = min(max(*used, 0), float64(out.Processors))
	}
	return &out, nil
}
