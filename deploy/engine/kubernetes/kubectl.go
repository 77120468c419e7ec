package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// errNoControlPlane says that no control plane has been set up yet.
var errNoControlPlane = errors.New("no control plane is set up yet")

// kubectl runs on the first control plane that can: one that answers us, and whose API
// server answers it. The one that did last comes first.
func (e *Engine) kubectl(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	var errs []error
	none := true
	all := e.orderControlPlanes()
	for i, node := range all {
		if ctx.Err() != nil {
			none = false
			break
		}
		out, err := e.tryKubectl(ctx, len(all)-i, node, stdin, args...)
		switch {
		case err == nil || isDefinite(err):
			e.mu.Lock()
			e.lastAnswered = node
			e.mu.Unlock()
			return out, err
		case e.isNotSetUp(ctx, node, err):
		default:
			none = false
			errs = append(errs, err)
		}
	}
	switch {
	case none:
		return nil, errNoControlPlane
	case len(errs) == 0 || ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, context.Cause(ctx)
	}
	return nil, errors.Join(errs...)
}

// orderControlPlanes are the control planes in the order in which they are asked.
func (e *Engine) orderControlPlanes() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.controlPlanes()
	if i := slices.Index(all, e.lastAnswered); i > 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, e.lastAnswered)
	}
	return all
}

// tryKubectl asks one of so many that are left: one that is silent must not use up the others' time. The
// last one may take it all.
func (e *Engine) tryKubectl(ctx context.Context, left int, node, stdin string, args ...string) ([]byte, error) {
	limit := tryTimeout
	if left == 1 {
		limit = allTimeout
	}
	if own := ownTimeout(args); own > 0 {
		limit += own
	} else if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/time.Duration(left))
	}
	one, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := e.kubectlOn(one, node, stdin, args...)
	if err != nil && one.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s: kubectl %s: no answer within %v", node, args[0], limit.Round(100*time.Millisecond))
	}
	return out, err
}

// ownTimeout is what the command itself waits for.
func ownTimeout(args []string) time.Duration {
	for _, a := range args {
		if text, ok := strings.CutPrefix(a, "--timeout="); ok {
			d, _ := time.ParseDuration(text) // what is none is kubectl's to refuse
			return d
		}
	}
	return 0
}

// isNotSetUp tells whether the error is that the node knows of no cluster yet. It may not even
// have a kubectl; one that has lost it, and not what it knows, is another thing.
func (e *Engine) isNotSetUp(ctx context.Context, node string, err error) bool {
	if strings.Contains(err.Error(), admin+": no such file") {
		return true
	}
	if !noKubectl.MatchString(err.Error()) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	_, err = e.Run(ctx, node, nil, "test", "!", "-e", admin)
	return err == nil
}

// noKubectl is what shells, and sudo, say of a command that is not there.
var noKubectl = regexp.MustCompile(`kubectl: (command )?not found|Unknown command:? '?kubectl`)

func (e *Engine) kubectlOn(ctx context.Context, node, stdin string, args ...string) ([]byte, error) {
	s, err := e.settings()
	if err != nil {
		return nil, err
	}
	// The node's own server: admin.conf names the endpoint, which may be a node that is gone.
	argv := append([]string{"kubectl", "--kubeconfig", admin, "--request-timeout=" + askTimeout.String(),
		fmt.Sprintf("--server=https://127.0.0.1:%d", s.Port), "--tls-server-name=kubernetes"}, args...)
	return e.Run(ctx, node, strings.NewReader(stdin), argv...)
}

// isDefinite tells an answer that another control plane would give as well. Others are about
// this one: its etcd may be slow, or its server about to end.
func isDefinite(err error) bool {
	return definiteError.MatchString(err.Error())
}

var definiteError = regexp.MustCompile(`Error from server \((NotFound|Forbidden|Invalid|Conflict|AlreadyExists|BadRequest|MethodNotAllowed)\)` +
	`|The \S+ ".*" is invalid|global timeout reached|timed out waiting for the condition`)

func isNotFound(err error) bool {
	return err != nil && strings.Contains(err.Error(), "(NotFound)")
}
