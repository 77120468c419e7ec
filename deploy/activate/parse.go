package activate

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"strings"
	"time"
)

// nodeParser parses the output of the command `inspect` of the shell script on the node. The output has lines of the form
// name=value. In the record of a run, the names begin with "run-".
type nodeParser struct {
	node   Node
	run    Run
	link   string         // the target of the profile's link
	ended  bool           // the line end=yes was parsed: the output is complete
	fields map[string]any // name in a line → pointer to the Go field that stores the line's value
}

func newNodeParser() *nodeParser {
	p := &nodeParser{run: Run{Seen: time.Hour}}
	n, r := &p.node, &p.run
	p.fields = map[string]any{
		"nixos": &n.NixOS, "current": &n.Current, "booted": &n.Booted, "profile": &n.Profile, "engine": &n.Engine,
		"link": &p.link, "generation": &n.Generations, "deployed": &n.Deployed, "specialisation": &n.specialisations,
		"failed": (*unitList)(&n.Failed), "system": &n.System, "boot-id": &n.BootID, "uptime": &n.Uptime,
		"kernel-booted": &n.BootedKernel, "kernel-profile": &n.ProfileKernel,
		"wanted": &n.desired, "no-keys": &n.NoKeys, "end": &p.ended,

		"run-run": &r.ID, "run-goal": (*string)(&r.Goal), "run-path": &r.path, "run-from": &r.From, "run-to": &r.To,
		"run-armed": &r.Armed, "run-phase": &r.phase,
		"run-outcome": (*string)(&r.Outcome), "run-reason": &r.Reason, "run-code": &r.code, "run-jobs": &r.jobs, "run-restored": &r.restored,
		"run-broken": (*unitList)(&r.broken), "run-users": (*unitList)(&r.users), "run-still": (*unitList)(&r.alreadyFailing), "run-boot": &r.bootID,
		"run-time": &r.Time, "run-alive": &r.Alive, "run-left": &r.Remaining, "run-seen": &r.Seen,
	}
	return p
}

// unitList is the type for a list of systemd units or users. The node prints the list in one line, separated by spaces. Each such
// line becomes one element of a field of type []string.
type unitList []string

// handleLine parses a line of output, and stores the value in the field for this name. It ignores lines with unknown names.
func (p *nodeParser) handleLine(line string) {
	name, value, _ := strings.Cut(line, "=")
	switch field := p.fields[name].(type) {
	case *string:
		*field = value
	case *bool:
		*field = value == "yes"
	case *time.Duration:
		*field = parseSeconds(value)
	case *time.Time:
		*field = parseTime(value)
	case *unitList:
		units := strings.Fields(value)
		slices.Sort(units)
		*field = slices.Compact(units)
	case *[]string:
		*field = append(*field, value)
	case *Kernel:
		f := append(strings.SplitN(value, " ", 4), "", "", "", "")
		*field = Kernel{f[0], f[1], f[2], f[3]}
	case *[]Generation:
		// /nix/var/nix/profiles/system-12-link 1700000000 /nix/store/… 25.05
		if f := strings.Fields(value); len(f) >= 3 {
			*field = append(*field, Generation{Number: generationNumber(f[0]), Time: parseTime(f[1]),
				Path: f[2], Version: strings.Join(f[3:], " ")})
		}
	}
}

// errIncomplete means that the shell script on the node has ended without an error, but has not printed its last line, end=yes.
var errIncomplete = errors.New("the node's output is incomplete")

// finishNode returns the parsed node, after the output has ended. It fails if the output is incomplete.
func (p *nodeParser) finishNode() (Node, error) {
	if !p.ended {
		return Node{}, errIncomplete
	}
	n := p.node
	n.Generation = generationNumber(p.link)
	slices.SortFunc(n.Generations, func(a, b Generation) int { return cmp.Compare(a.Number, b.Number) })
	for i := range n.Generations {
		g := &n.Generations[i]
		g.Current, g.Booted, g.Default = g.Path == n.Current, g.Path == n.Booted, g.Number == n.Generation
	}
	if p.run.ID != "" {
		run := p.run
		run.Remaining = max(0, run.Remaining)
		run.Rebooted = run.phase != "done" && run.bootID != n.BootID
		n.Last = &run
	}
	return n, nil
}

// generationNumber returns the number of the generation in the name of a link to it, such as 12 in system-12-link. It returns 0 if
// the name contains none.
func generationNumber(link string) int {
	name, ok := strings.CutPrefix(path.Base(link), "system-")
	if !ok {
		return 0
	}
	return parseInt(strings.TrimSuffix(name, "-link"))
}
