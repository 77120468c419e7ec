package deployments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Options select what [Run] measures.
type Options struct {
	Machines       int
	Repeat         int    // number of runs of each scenario
	Scenarios      string // names between commas; empty: all
	Program        string // path of the measured nixbench; empty: built from these sources
	Against        string // path of another nixbench, or empty
	AgainstCommand string // instead of Against, a command line of sh, or empty
	Load           int    // number of busy loops during all runs
	Generations    int    // number of generations that the nodes get first
	Size           int    // of the large path, in megabytes
	JSON           string // file for the figures of all runs, or empty
	Check          bool   // fail if a budget is exceeded
	Dir            string // folder for the lab and the hives; the caller removes it
	Out, Progress  io.Writer
}

// validate checks the options without starting anything, and makes the paths of programs absolute.
func (o *Options) validate() error {
	if os.Geteuid() != 0 {
		return errors.New("only root can start the machines of the lab and read their accounting; run this as root")
	}
	for _, n := range []struct {
		flag            string
		value, min, max int
	}{
		{"machines", o.Machines, 1, 200}, {"repeat", o.Repeat, 1, 100}, {"load", o.Load, 0, 100},
		{"generations", o.Generations, 0, 5000}, {"size", o.Size, 1, 5000},
	} {
		if n.value < n.min || n.value > n.max {
			return fmt.Errorf("-%s: expected a number between %d and %d, not %d", n.flag, n.min, n.max, n.value)
		}
	}
	if o.Against != "" && o.AgainstCommand != "" {
		return errors.New("-against and -against-command exclude each other")
	}
	for _, program := range []*string{&o.Program, &o.Against} {
		if *program == "" {
			continue
		}
		path, err := filepath.Abs(*program)
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			return err
		}
		*program = path
	}
	_, err := selectScenarios(o.Scenarios)
	return err
}

// buildProgram builds nixbench from the sources of this program.
func buildProgram(ctx context.Context, target string) error {
	_, file, _, _ := runtime.Caller(0)
	build := exec.CommandContext(ctx, "go", "build", "-o", target, "./cmd/nixbench")
	build.Dir = filepath.Join(filepath.Dir(file), "../../..")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", build.Dir, err, out)
	}
	return nil
}
