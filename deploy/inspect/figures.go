package inspect

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

// Figures are the sizes of a node's processors, memory and disk, and their use, as the node itself reports them.
type Figures struct {
	Processors int `json:"processors"`
	// ProcessorsUsed is the average number of processors that were busy during the measurement. It is nil if the
	// node's kernel does not count the time of its control group.
	ProcessorsUsed *float64 `json:"processorsUsed,omitempty"`
	Memory         int64    `json:"memory"`     // bytes
	MemoryUsed     int64    `json:"memoryUsed"` // bytes that programs cannot get
	Disk           int64    `json:"disk"`       // bytes of the file system of /, or of /nix/store if it is fuller
	DiskUsed       int64    `json:"diskUsed"`
}

// figuresScript prints the figures of a node. It reads the processor time of the node's control group, because /proc/stat in a
// container contains the processor time of the host.
const figuresScript = `
busy() {
  read -r now _ </proc/uptime
  if [ -r /sys/fs/cgroup/cpu.stat ]; then
    while read -r name value; do [ "$name" != usage_usec ] || echo "busy $now $value"; done </sys/fs/cgroup/cpu.stat
  elif read -r value </sys/fs/cgroup/cpuacct/cpuacct.usage; then
    echo "busy $now $((value / 1000))"
  fi
} 2>/dev/null
busy
echo "processors $(nproc)"
while read -r name value _; do
  case $name in MemTotal: | MemAvailable:) echo "$name $value" ;; esac
done </proc/meminfo
df -Pk / /nix/store 2>/dev/null | while read -r _ size used free _; do
  case $size in *[!0-9]*) ;; *) echo "disk $((used + free)) $used" ;; esac
done
sleep 0.5
busy
`

// ReadFigures returns the figures of nodes, by node name. It runs one command on each node, for half a second. A node
// that does not answer has no figures.
func ReadFigures(ctx context.Context, f *fleet.Fleet, nodes []nixeval.Node, parallel int) map[string]*Figures {
	out := map[string]*Figures{}
	for _, o := range fleet.Each(ctx, nodes, parallel, func(ctx context.Context, n nixeval.Node) (*Figures, error) {
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		text, err := f.Run(ctx, n.Name, nil, "sh", "-c", figuresScript)
		if err != nil {
			return nil, err
		}
		return parseFigures(string(text))
	}) {
		if o.Err == nil {
			out[o.Node.Name] = o.Value
		}
	}
	return out
}

// maxFigures is the maximal size of the output of figuresScript in bytes; more is ignored.
const maxFigures = 64 << 10

// parseFigures parses the output of figuresScript.
func parseFigures(text string) (*Figures, error) {
	text = text[:min(len(text), maxFigures)]
	var out Figures
	var busy, uptime []float64
	var available int64
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		values := make([]float64, len(words)-1)
		for i, word := range words[1:] {
			value, err := strconv.ParseFloat(word, 64)
			if err != nil || !(value >= 0 && value < 1e15) { // also not NaN, which JSON does not have
				return nil, fmt.Errorf("the node's figures contain %.200q", line)
			}
			values[i] = value
		}
		switch {
		case words[0] == "busy" && len(values) == 2:
			uptime, busy = append(uptime, values[0]), append(busy, values[1])
		case words[0] == "processors":
			out.Processors = int(values[0])
		case words[0] == "MemTotal:":
			out.Memory = int64(values[0]) << 10
		case words[0] == "MemAvailable:":
			available = int64(values[0]) << 10
		case words[0] == "disk" && len(values) == 2 && values[0] > 0:
			if size, used := int64(values[0])<<10, int64(values[1])<<10; out.Disk == 0 || float64(used)/float64(size) > float64(out.DiskUsed)/float64(out.Disk) {
				out.Disk, out.DiskUsed = size, used
			}
		}
	}
	if out.Processors == 0 || out.Memory == 0 {
		return nil, fmt.Errorf("the node's figures are incomplete: %.200q", text)
	}
	out.MemoryUsed = max(0, out.Memory-available)
	if len(busy) == 2 && uptime[1] > uptime[0] {
		used := max(0, (busy[1]-busy[0])/1e6/(uptime[1]-uptime[0]))
		out.ProcessorsUsed = &used
	}
	return &out, nil
}
