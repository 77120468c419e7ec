package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/failure"
)

// errNoControlPlane is returned if no control plane of the hive has been set up yet, so that the cluster
// does not exist.
var errNoControlPlane = errors.New("no control plane is set up yet")

// runKubectl runs kubectl on one control plane after the other, until an API server answers, and returns that
// answer. It begins with the control plane that answered last.
func (e *Engine) runKubectl(ctx context.Context, stdin string, args ...string) ([]byte, error) {
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
		case err == nil || isDefiniteError(err):
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

// listObjects runs a kubectl get command, whose arguments are given, and returns the objects that it prints.
func (e *Engine) listObjects(ctx context.Context, args ...string) ([]gjson.Result, error) {
	out, err := e.runKubectl(ctx, "", append(args, "-o", "json")...)
	if err != nil {
		return nil, err
	}
	list, err := parseJSON(out)
	if err != nil {
		return nil, fmt.Errorf("kubectl %s %w", strings.Join(args, " "), err)
	}
	return list.Get("items").Array(), nil
}

// maxValues is the maximal number of values in the output of a node. Real output of the maximal size has fewer: an element
// of an array needs 80 bytes of memory, and two bytes of JSON.
const maxValues = 1 << 19

// parseJSON parses the output of a program on a node. The error completes a sentence that begins with the program.
func parseJSON(text []byte) (gjson.Result, error) {
	switch {
	case !json.Valid(text): // it limits the depth, unlike gjson.Valid
		return gjson.Result{}, errors.New("printed no JSON")
	case bytes.Count(text, []byte(",")) > maxValues:
		return gjson.Result{}, fmt.Errorf("printed more than %d values", maxValues)
	}
	return gjson.ParseBytes(text), nil
}

// orderControlPlanes returns the control planes. The control plane that answered last is the first.
func (e *Engine) orderControlPlanes() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.NodesOf(ControlPlane)
	if i := slices.Index(all, e.lastAnswered); i > 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, e.lastAnswered)
	}
	return all
}

// tryKubectl runs kubectl on one control plane. left is the number of control planes that have not been
// tried yet, including this one: the remaining time of ctx is divided among them.
func (e *Engine) tryKubectl(ctx context.Context, left int, node, stdin string, args ...string) ([]byte, error) {
	limit := attemptTimeout
	if left == 1 {
		limit = apiTimeout
	}
	if own := parseTimeoutFlag(args); own > 0 {
		limit += own
	} else if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/time.Duration(left))
	}
	one, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := e.runKubectlOn(one, node, stdin, args...)
	if err != nil && one.Err() != nil && ctx.Err() == nil {
		err = failure.On(node, fmt.Errorf("kubectl %s: no answer within %v", args[0], limit.Round(100*time.Millisecond)))
	}
	return out, err
}

// parseTimeoutFlag returns the value of --timeout in a kubectl command, or 0.
func parseTimeoutFlag(args []string) time.Duration {
	for _, a := range args {
		if text, ok := strings.CutPrefix(a, "--timeout="); ok {
			d, _ := time.ParseDuration(text) // kubectl refuses an invalid value
			return d
		}
	}
	return 0
}

// isNotSetUp reports whether kubectl failed with err because the control plane has not been set up yet. Such
// a node has no admin.conf, and may have no kubectl. A node that has an admin.conf and no kubectl has been
// set up.
func (e *Engine) isNotSetUp(ctx context.Context, node string, err error) bool {
	if strings.Contains(err.Error(), adminConf+": no such file") {
		return true
	}
	if !kubectlMissingError.MatchString(err.Error()) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	_, err = e.Run(ctx, node, nil, "test", "!", "-e", adminConf)
	return err == nil
}

// kubectlMissingError matches the messages of shells and sudo if kubectl is not installed.
var kubectlMissingError = regexp.MustCompile(`kubectl: (command )?not found|Unknown command:? '?kubectl`)

func (e *Engine) runKubectlOn(ctx context.Context, node, stdin string, args ...string) ([]byte, error) {
	s, err := e.clusterSettings()
	if err != nil {
		return nil, err
	}
	// Use the API server of the node, and not the endpoint in admin.conf, which may be the address of a
	// removed node.
	argv := append([]string{"kubectl", "--kubeconfig", adminConf, "--request-timeout=" + commandTimeout.String(),
		fmt.Sprintf("--server=https://127.0.0.1:%d", s.Port), "--tls-server-name=kubernetes"}, args...)
	out, err := e.Run(ctx, node, strings.NewReader(stdin), argv...)
	if err != nil && isRBACMissingError(err) { // replace the message of the API server by the cause
		err = failure.On(node, fmt.Errorf("its API server has started and not loaded its RBAC rules yet: %s", rbacDeniedError.FindString(err.Error())))
	}
	return out, err
}

// isDefiniteError reports whether every control plane would return this error, so that no other control plane
// is tried. Other errors concern one control plane: its etcd may be slow, or its API server may be stopping or
// starting.
func isDefiniteError(err error) bool {
	return definiteError.MatchString(err.Error()) && !isRBACMissingError(err)
}

// isRBACMissingError reports whether an API server has denied a request of the administrator, who has all
// permissions. An API server does so for some seconds after its start, until it has loaded its RBAC rules.
func isRBACMissingError(err error) bool { return rbacDeniedError.MatchString(err.Error()) }

// rbacDeniedError matches the message of the RBAC authorizer, which names the user. The message of a webhook or
// a quota that denies a request names no user.
var rbacDeniedError = regexp.MustCompile(`Error from server \(Forbidden\): .*User "[^"]*" cannot .*`)

var definiteError = regexp.MustCompile(`Error from server \((NotFound|Forbidden|Invalid|Conflict|AlreadyExists|BadRequest|MethodNotAllowed)\)` +
	`|The \S+ ".*" is invalid|global timeout reached|timed out waiting for the condition`)

func isNotFoundError(err error) bool {
	return err != nil && strings.Contains(err.Error(), "(NotFound)")
}
