package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	// steadyTimeout is how long a kubelet has to run to be well that systemd has started again. A
	// kubelet that cannot work dies within seconds.
	steadyTimeout = 10 * time.Second
	// stoppedTimeout is how long a program may be stopped that nothing starts again.
	stoppedTimeout = 20 * time.Second
)

// Inspect implements [engine.Inspector]: the container runtime and the kubelet run. A kubelet that
// was never started, since its node has not joined yet, is no fault.
func (e *Engine) Inspect(ctx context.Context, node string) error {
	if !e.isInHive(node) {
		return nil
	}
	for end := time.Now().Add(steadyTimeout + 2*time.Second); ; {
		own, err := e.readUnits(ctx, node)
		if err != nil {
			return nil // a node that cannot be asked is found out by whoever changes it
		}
		err = own.checkRunning()
		dead := &stoppedError{}
		if err == nil || errors.As(err, &dead) || time.Now().After(end) {
			if err == nil || dead.state == stateStopped {
				return err // what it has said before is not the reason
			}
			if words := e.lastKubeletError(ctx, node); words != "" {
				err = fmt.Errorf("%w (%s)", err, words)
			}
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stoppedError is for a program that is stopped, and that nothing starts again.
type stoppedError struct{ unit, state string }

// stateStopped is the state of a program that has ended well, mostly by hand.
const stateStopped = "stopped"

func (e *stoppedError) Error() string { return "its " + e.unit + " is " + e.state }

// units are those that a member needs, as systemd on the node shows them; now is the node's time.
type units struct {
	now        time.Time
	properties map[string]map[string]string
}

const kubeletUnit = "kubelet.service"

// readUnits asks a node for its units.
func (e *Engine) readUnits(ctx context.Context, node string) (units, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	const script = "date +now=%s; systemctl show --timestamp=unix --property=Id,ActiveState,SubState,ActiveEnterTimestamp,NRestarts,ConditionResult kubelet.service containerd.service crio.service"
	out, err := e.Run(ctx, node, nil, "sh", "-c", script)
	if err != nil {
		return units{}, err
	}
	return parseUnits(string(out)), nil
}

// parseUnits reads lines KEY=VALUE. An empty line ends a unit.
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

// checkStopped is an error if a program is stopped, and nothing starts it again.
func (u units) checkStopped() error {
	for _, runtime := range []string{"containerd", "crio"} { // the one that the node does not use is inactive
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

// checkRunning is an error if a program does not work, perhaps only for a moment.
func (u units) checkRunning() error {
	if err := u.checkStopped(); err != nil {
		return err
	}
	kubelet := u.properties[kubeletUnit]
	begun, _ := u.kubeletStart()
	switch state := kubelet["SubState"]; {
	case state == "running" && (kubelet["NRestarts"] == "0" || u.now.Sub(begun) > steadyTimeout):
		return nil
	case state == "running":
		return fmt.Errorf("its kubelet dies again and again: systemd has started it %s times, %v ago", kubelet["NRestarts"], u.now.Sub(begun))
	case state == "dead": // it was never started
		return nil
	default:
		return fmt.Errorf("its kubelet is %s", cmp.Or(state, "unknown"))
	}
}

// kubeletStart is when the kubelet was started, in whole seconds.
func (u units) kubeletStart() (time.Time, error) {
	text := u.properties[kubeletUnit]["ActiveEnterTimestamp"]
	seconds, err := strconv.ParseInt(strings.TrimPrefix(text, "@"), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("its kubelet runs since %q", text)
	}
	return time.Unix(seconds, 0), nil
}

// checkKubeletReported wants the kubelet to have reported since it was started: the API calls a node Ready
// for most of a minute after its kubelet has died, and systemd calls one active that dies again and
// again. All times are the node's own.
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
	out, err := e.kubectl(ctx, "", "-n", "kube-node-lease", "get", "lease", node, "-o", "jsonpath={.spec.renewTime}")
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
	case renewed.Before(begun.Add(time.Second)): // systemd tells whole seconds
		return errors.New("its kubelet has not reported since it was started")
	case since > reportTimeout:
		return fmt.Errorf("its kubelet has not reported for %v", since.Round(time.Second))
	}
	return nil
}

// klogError is how Kubernetes' programs begin a line about an error: E1122 04:05:06.789.
var klogError = regexp.MustCompile(`^[EF]\d{4} [0-9:.]+\s+\d+ (\S+\] )?`)

// lastKubeletError is the last error that the node's kubelet has logged, or else its last line.
func (e *Engine) lastKubeletError(ctx context.Context, node string) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := e.Run(ctx, node, nil, "journalctl", "--no-pager", "-q", "-o", "cat", "-n", "40", "_SYSTEMD_UNIT=kubelet.service")
	if err != nil {
		return ""
	}
	words := ""
	isError := false
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		prefix := klogError.FindString(line)
		if line == "" || isError && prefix == "" {
			continue
		}
		words, isError = strings.TrimPrefix(line, prefix), prefix != ""
	}
	const most = 300
	if len(words) > most {
		words = strings.ToValidUTF8(words[:most], "") + "…"
	}
	return words
}
