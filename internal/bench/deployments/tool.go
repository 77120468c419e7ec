package deployments

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/e2e/lab"
)

const runLimit = 5 * time.Minute // for one run of a tool

// A tool is a program that deploys: a nixbench, or a command line of sh.
type tool struct {
	label   string // the column of the table
	program string // path of a nixbench
	command string // instead of program
	dir     string // folder of its hive and state
	env     []string
	applied *hive // what it has applied last; nil if another tool has changed the nodes since
}

// buildArgv returns the command for a goal. nodes is empty for all nodes.
func (t *tool) buildArgv(g goal, on string) []string {
	if t.command != "" {
		return []string{"sh", "-c", t.command}
	}
	argv := []string{t.program}
	switch g {
	case goalSwitch:
		argv = append(argv, "apply")
	case goalPush:
		argv = append(argv, "apply", "push")
	default:
		argv = append(argv, string(g))
	}
	if on != "" {
		argv = append(argv, "--on", on)
	}
	return argv
}

// buildEnv returns the environment for a goal. A command line gets the hive's folder, the goal and the nodes.
func (t *tool) buildEnv(g goal, on, nixpkgs string) []string {
	if on == "" {
		on = "*"
	}
	return append(slices.Clone(t.env), "NIX_PATH=nixpkgs="+nixpkgs, "HIVE="+t.dir, "GOAL="+string(g), "ON="+on)
}

// run runs the tool and returns what it cost on this host. The processor time and the bytes that were read include
// those of child processes that the tool, or one of its children, waited for.
func (t *tool) run(ctx context.Context, l *lab.Lab, g goal, on, nixpkgs string) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	argv := t.buildArgv(g, on)
	cmd := l.NetworkCommand(ctx, argv[0], argv[1:]...)
	var output bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = t.dir, t.buildEnv(g, on, nixpkgs), &output, &output
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// The process remains as a zombie until Wait, so that its /proc/PID/io can be read. The end of ctx signals it even
	// before Wait is called.
	ended := waitForEnd(cmd.Process.Pid)
	took := time.Since(begin)
	read, readErr := readBytesRead(cmd.Process.Pid)
	err := errors.Join(ended, cmd.Wait())
	if err != nil {
		text := strings.TrimSpace(output.String())
		return nil, fmt.Errorf("%s: %s: %w after %v:\n%s", t.label, strings.Join(argv, " "), err, took.Round(10*time.Millisecond), text[max(0, len(text)-2000):])
	}
	if readErr != nil {
		return nil, fmt.Errorf("read the I/O accounting of %s: %w", argv[0], readErr)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return figures{wall: took.Seconds(), operatorCPU: float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9, operatorRead: read}, nil
}

// waitForEnd waits until a child process has ended, but does not remove it.
func waitForEnd(pid int) error {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return err
		}
	}
}

// readBytesRead returns how many bytes a process, and the children that it waited for, have read: from files, also from
// the page cache, and from pipes and sockets.
func readBytesRead(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	return parseBytesRead(string(text))
}

// parseBytesRead parses /proc/PID/io.
func parseBytesRead(text string) (float64, error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "rchar:"); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("no line rchar in %q", text)
}
