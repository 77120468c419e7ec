package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

const (
	// minKubeletUptime is the time after which a restarted kubelet counts as healthy. A kubelet that cannot
	// work exits within seconds.
	minKubeletUptime = 10 * time.Second
	// stoppedTimeout is the time after which WaitReady fails if a program is stopped and systemd does not
	// restart it.
	stoppedTimeout = 20 * time.Second
)

// Inspect implements [engine.Inspector]. It checks that the container runtime and the kubelet of a node
// run. A kubelet that was never started is not an error, because the node has not joined yet.
func (e *Engine) Inspect(ctx context.Context, node string) error {
	if !e.isInHive(node) {
		return nil
	}
	for end := time.Now().Add(minKubeletUptime + 2*time.Second); ; {
		own, err := e.readUnits(ctx, node)
		if ctx.Err() != nil {
			return context.Cause(ctx) // without this error, a check whose time has run out would hold
		}
		if err != nil {
			return nil // not an error here: the deployment reports that the node cannot be reached
		}
		err = own.checkRunning()
		stopped := &stoppedError{}
		if err == nil || errors.As(err, &stopped) || time.Now().After(end) {
			if err == nil || stopped.state == stateStopped {
				return err // no log line is added: a kubelet that was stopped by hand has logged no error
			}
			if words := e.lastKubeletError(ctx, node); words != "" {
				err = fmt.Errorf("%w (%s)", err, words)
			}
			return err
		}
		if !sleep(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
}

// Look implements [engine.Inspector].
func (e *Engine) Look(ctx context.Context, node string) ([]engine.Fault, error) {
	if !e.isInHive(node) {
		return nil, nil
	}
	return e.Cluster.Look(ctx, node, "containerd.service", "crio.service", kubeletUnit)
}

// stoppedError is returned if a program of a member is stopped and systemd does not restart it.
type stoppedError struct{ unit, state string }

// stateStopped is the state of a program that has ended without an error. Usually an administrator has
// stopped it.
const stateStopped = "stopped"

func (e *stoppedError) Error() string { return "its " + e.unit + " is " + e.state }

// units contains the properties of the systemd units that a member needs.
type units struct {
	now        time.Time                    // the time on the node when the units were read
	properties map[string]map[string]string // name of the unit → name of the property → value
}

const kubeletUnit = "kubelet.service"

// readUnits reads the properties of the kubelet's and the container runtimes' units on a node.
func (e *Engine) readUnits(ctx context.Context, node string) (units, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	const script = "date +now=%s; systemctl show --timestamp=unix --property=Id,ActiveState,SubState,ActiveEnterTimestamp,NRestarts,ConditionResult kubelet.service containerd.service crio.service"
	out, err := e.Run(ctx, node, nil, "sh", "-c", script)
	if err != nil {
		return units{}, err
	}
	return parseUnits(string(out)), nil
}

// parseUnits parses lines KEY=VALUE, as systemctl show prints them. An empty line separates two units.
func parseUnits(text string) units {
	u := units{properties: map[string]map[string]string{}}
	own := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case !ok:
			own = map[string]string{}
		case key == "now":
			seconds, _ := strconv.ParseInt(value, 10, 64)
			u.now = time.Unix(seconds, 0)
		default:
			own[key] = value
			if key == "Id" {
				u.properties[value] = own
			}
		}
	}
	return u
}

// checkStopped returns a stoppedError if the kubelet or the container runtime is stopped and systemd does
// not restart it.
func (u units) checkStopped() error {
	for _, runtime := range []string{"containerd", "crio"} { // the one that the node does not use is inactive, which is no error
		if state := u.properties[runtime+".service"]["ActiveState"]; state == "failed" {
			return &stoppedError{runtime, state}
		}
	}
	kubelet := u.properties[kubeletUnit]
	if state := kubelet["SubState"]; (state == "dead" || state == "failed") && kubelet["ConditionResult"] != "no" {
		if state == "dead" {
			state = stateStopped
		}
		return &stoppedError{"kubelet", state}
	}
	return nil
}

// checkRunning returns an error if the kubelet or the container runtime does not run. The cause may be
// temporary.
func (u units) checkRunning() error {
	if err := u.checkStopped(); err != nil {
		return err
	}
	kubelet := u.properties[kubeletUnit]
	begun, _ := u.kubeletStart()
	switch state := kubelet["SubState"]; {
	case state == "running" && (kubelet["NRestarts"] == "0" || u.now.Sub(begun) > minKubeletUptime):
		return nil
	case state == "running":
		return fmt.Errorf("its kubelet exits repeatedly: systemd has restarted it %s times, last %v ago", kubelet["NRestarts"], u.now.Sub(begun))
	case state == "dead": // the kubelet was never started
		return nil
	default:
		return fmt.Errorf("its kubelet is %s", cmp.Or(state, "unknown"))
	}
}

// kubeletStart returns the time of the last start of the kubelet, rounded down to seconds.
func (u units) kubeletStart() (time.Time, error) {
	text := u.properties[kubeletUnit]["ActiveEnterTimestamp"]
	seconds, err := strconv.ParseInt(strings.TrimPrefix(text, "@"), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("its kubelet runs since %q", text)
	}
	return time.Unix(seconds, 0), nil
}

// checkKubeletReported returns nil if the kubelet runs, and has renewed its lease after its start and within
// maxLeaseAge. The Ready condition is not sufficient, because it stays true for most of a minute after the
// kubelet has exited. The state of the unit is not sufficient, because systemd reports a kubelet that exits
// repeatedly as active. All times are from the clock of the node.
func (e *Engine) checkKubeletReported(ctx context.Context, node string) error {
	own, err := e.readUnits(ctx, node)
	if err != nil {
		return err
	}
	if err := own.checkStopped(); err != nil {
		return err
	}
	if state := own.properties[kubeletUnit]["SubState"]; state != "running" {
		return fmt.Errorf("its kubelet is %s", cmp.Or(state, "unknown"))
	}
	out, err := e.runKubectl(ctx, "", "-n", "kube-node-lease", "get", "lease", node, "-o", "jsonpath={.spec.renewTime}")
	if err != nil {
		return err
	}
	renewed, err := time.Parse(time.RFC3339, string(out))
	if err != nil {
		return fmt.Errorf("its lease has no time: %w", err)
	}
	begun, err := own.kubeletStart()
	switch since := own.now.Sub(renewed); {
	case err != nil:
		return err
	case renewed.Before(begun.Add(time.Second)): // systemd rounds the start time down to seconds
		return errors.New("its kubelet has not reported since it was started")
	case since > maxLeaseAge:
		return fmt.Errorf("its kubelet has not reported for %v", since.Round(time.Second))
	}
	return nil
}

// lastKubeletError returns the last error in the log of the node's kubelet, or the last line if the log
// contains no error. It returns an empty string if the log cannot be read.
func (e *Engine) lastKubeletError(ctx context.Context, node string) string {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := e.Run(ctx, node, nil, "journalctl", "--no-pager", "-q", "-o", "cat", "-n", "40", "_SYSTEMD_UNIT=kubelet.service")
	if err != nil {
		return ""
	}
	return engine.LastError(strings.Split(string(out), "\n"))
}
