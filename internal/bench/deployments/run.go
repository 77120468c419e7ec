package deployments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// Run starts a lab, runs the scenarios, and prints the table.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	selected, err := selectScenarios(o.Scenarios)
	if err != nil {
		return err
	}
	if o.Program == "" {
		o.Program = filepath.Join(o.Dir, "nixbench")
		if err := buildProgram(ctx, o.Program); err != nil {
			return err
		}
	}
	hierarchy, err := readHierarchy()
	if err != nil {
		return err
	}
	l, out, err := lab.Up(filepath.Join(o.Dir, "lab"), o.Machines)
	if l != nil {
		defer func() { err = errors.Join(err, l.Down()) }()
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Progress, "%s\n", out)
	nodes, err := findNodes(l, hierarchy)
	if err != nil {
		return err
	}
	tools, err := makeTools(o)
	if err != nil {
		return err
	}
	r := &runner{options: o, lab: l, hierarchy: hierarchy, nodes: nodes, tools: tools, salt: strconv.FormatInt(time.Now().UnixNano(), 36)}
	if r.tracer, err = startTracer(nodes); err != nil {
		r.notes = append(r.notes, "programs are not counted: "+err.Error())
	} else {
		defer r.tracer.stop()
	}
	if o.Load > 0 {
		stop, err := startLoad(o.Load)
		defer stop()
		if err != nil {
			return err
		}
	}
	defer r.removeLarge()
	if o.Generations > 0 {
		if err := r.makeGenerations(ctx); err != nil {
			return err
		}
	}
	report := &report{Machines: o.Machines, Repeat: o.Repeat, Load: o.Load, Generations: o.Generations, Size: o.Size}
	for _, t := range tools {
		report.Tools = append(report.Tools, t.describe())
	}
	for _, s := range selected {
		result := r.measureScenario(ctx, s)
		if ctx.Err() != nil {
			break // its figures are incomplete
		}
		report.add(s, result)
	}
	report.Notes = r.notes
	if err := report.print(o.Out); err != nil {
		return err
	}
	if o.JSON != "" {
		if err := report.write(o.JSON); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %d of %d scenarios were measured", err, len(report.Scenarios), len(selected))
	}
	return report.findFailure(o.Check)
}

func readHierarchy() (hierarchy, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return hierarchy{}, err
	}
	return findHierarchy(string(text))
}

// makeTools returns the measured nixbench, and what it is compared with.
func makeTools(o Options) ([]*tool, error) {
	tools := []*tool{{label: "new", program: o.Program}}
	switch {
	case o.Against != "":
		tools = append(tools, &tool{label: "against", program: o.Against})
	case o.AgainstCommand != "":
		tools = append(tools, &tool{label: "against", command: o.AgainstCommand})
	}
	home := filepath.Join(o.Dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, err
	}
	for _, t := range tools {
		t.dir = filepath.Join(o.Dir, "hive-"+t.label)
		t.env = append(os.Environ(), "HOME="+home, "NIX_CONFIG="+fixture.NixConfig, "SSH_AUTH_SOCK=", "NO_COLOR=1")
		if err := os.Mkdir(t.dir, 0o700); err != nil {
			return nil, err
		}
	}
	return tools, nil
}
