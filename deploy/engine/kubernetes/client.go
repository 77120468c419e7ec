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
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

const (
	requestTimeout = 15 * time.Second // time limit of one request of kubectl to its API server
	attemptTimeout = 10 * time.Second // time limit of kubectl on one control plane, if another control plane can be tried afterwards
	// Timeout is the time limit of kubectl on all control planes together.
	Timeout = 30 * time.Second
)

// Client runs kubectl on the control planes of a cluster, and drains and uncordons nodes. [Engine] has the rest.
type Client struct {
	engine.Cluster

	mu           sync.Mutex
	lastAnswered string // the control plane on which kubectl succeeded last; see orderControlPlanes
}

// ErrNoControlPlane is returned if no control plane of the hive has been set up yet, so that the cluster does not exist.
var ErrNoControlPlane = errors.New("no control plane is set up yet")

// Kubectl runs kubectl on one control plane after the other until an API server answers, and returns the output of kubectl. It
// begins with the control plane that answered last.
func (c *Client) Kubectl(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	var errs []error
	all := c.orderControlPlanes()
	for i, node := range all {
		out, err := c.try(ctx, len(all)-i, node, stdin, args...)
		switch {
		case err == nil || IsDefinite(err):
			c.mu.Lock()
			c.lastAnswered = node
			c.mu.Unlock()
			return out, err
		case !c.isNotSetUp(ctx, node, err):
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled), ctx.Err() != nil && len(errs) == 0: // not all control planes were asked
		return nil, context.Cause(ctx)
	case len(errs) == 0:
		return nil, ErrNoControlPlane
	}
	return nil, errors.Join(errs...)
}

// orderControlPlanes returns the control planes. The control plane that answered last is the first.
func (c *Client) orderControlPlanes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.NodesOf(ControlPlane)
	if i := slices.Index(all, c.lastAnswered); i > 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, c.lastAnswered)
	}
	return all
}

// try runs kubectl on one control plane. left is the number of control planes that have not been tried yet, including this one.
// The remaining time of ctx is divided equally among them.
func (c *Client) try(ctx context.Context, left int, node, stdin string, args ...string) ([]byte, error) {
	limit := attemptTimeout
	if left == 1 {
		limit = Timeout
	}
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/time.Duration(left))
	}
	one, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := c.KubectlOn(one, node, stdin, args...)
	if err != nil && one.Err() != nil && ctx.Err() == nil {
		err = failure.On(node, fmt.Errorf("kubectl %s: no answer within %v", args[0], limit.Round(100*time.Millisecond)))
	}
	return out, err
}

// isNotSetUp reports whether kubectl failed with err because the control plane has not been set up yet: the node has no
// kubeconfig, and perhaps no kubectl. A node with a kubeconfig has been set up, even if it has no kubectl.
func (c *Client) isNotSetUp(ctx context.Context, node string, err error) bool {
	if strings.Contains(err.Error(), AdminConf+": no such file") {
		return true
	}
	if !kubectlMissingError.MatchString(err.Error()) {
		return false
	}
	_, err = c.Command(ctx, node, "test", "!", "-e", AdminConf)
	return err == nil
}

// kubectlMissingError matches the messages of shells and sudo if kubectl is not installed.
var kubectlMissingError = regexp.MustCompile(`kubectl: (command )?not found|Unknown command:? '?kubectl`)

// Arguments returns the arguments of kubectl that select the API server of the control plane on which it runs. The endpoint in admin.conf may
// be the address of a removed node.
func (c *Client) Arguments() ([]string, error) {
	s, err := c.settings()
	return []string{fmt.Sprintf("--server=https://127.0.0.1:%d", s.Port), "--tls-server-name=kubernetes"}, err
}

func (c *Client) KubectlOn(ctx context.Context, node, stdin string, args ...string) ([]byte, error) {
	more, err := c.Arguments()
	if err != nil {
		return nil, err
	}
	argv := append([]string{"kubectl", "--kubeconfig", AdminConf, "--request-timeout=" + requestTimeout.String()}, append(more, args...)...)
	out, err := c.Run(ctx, node, strings.NewReader(stdin), argv...)
	if err != nil && isRBACMissing(err) { // replace the message of the API server by the cause
		err = failure.On(node, fmt.Errorf("its API server has started and not loaded its RBAC rules yet: %s", rbacDeniedError.FindString(err.Error())))
	}
	return out, err
}

// Get runs kubectl get with the given arguments, and returns the object that kubectl prints.
func (c *Client) Get(ctx context.Context, args ...string) (gjson.Result, error) {
	out, err := c.Kubectl(ctx, "", append(args, "-o", "json")...)
	if err != nil {
		return gjson.Result{}, err
	}
	object, err := ParseJSON(out)
	if err != nil {
		return gjson.Result{}, fmt.Errorf("kubectl %s %w", strings.Join(args, " "), err)
	}
	return object, nil
}

// List runs kubectl get with the given arguments, and returns the objects that kubectl prints.
func (c *Client) List(ctx context.Context, args ...string) ([]gjson.Result, error) {
	list, err := c.Get(ctx, args...)
	return list.Get("items").Array(), err
}

// maxValues is the maximum number of JSON values in the output of a node, which limits memory: an element of an array needs 80
// bytes of memory, but only two bytes of JSON. Real output has fewer values, even output of the maximum size.
const maxValues = 1 << 19

// ParseJSON parses the output of a program on a node. Its error is the end of a sentence that begins with the name of the program.
func ParseJSON(text []byte) (gjson.Result, error) {
	switch {
	case !json.Valid(text): // json.Valid limits the depth of the JSON, and gjson.Valid does not
		return gjson.Result{}, errors.New("printed no JSON")
	case bytes.Count(text, []byte(",")) > maxValues:
		return gjson.Result{}, fmt.Errorf("printed more than %d values", maxValues)
	}
	return gjson.ParseBytes(text), nil
}

// IsDefinite reports whether every control plane would return this error, so that nixbench does not try another control plane.
// Other errors concern one control plane: its etcd may be slow, or its API server may be stopping or starting.
func IsDefinite(err error) bool {
	return definiteError.MatchString(err.Error()) && !isRBACMissing(err)
}

// isRBACMissing reports whether an API server has denied a request of the administrator, who has all
// permissions. An API server does so for some seconds after its start, until it has loaded its RBAC rules.
func isRBACMissing(err error) bool { return rbacDeniedError.MatchString(err.Error()) }

// rbacDeniedError matches the message of the RBAC authorizer, which names the user. The message of a webhook or
// a quota that denies a request names no user.
var rbacDeniedError = regexp.MustCompile(`Error from server \(Forbidden\): .*User "[^"]*" cannot .*`)

var definiteError = regexp.MustCompile(`Error from server \((NotFound|Forbidden|Invalid|Conflict|AlreadyExists|BadRequest|MethodNotAllowed)\)` +
	`|The \S+ ".*" is invalid|global timeout reached|timed out waiting for the condition`)

// apiUnavailableError matches the messages of kubectl if the API does not answer. The API may be unavailable
// for some seconds after a control plane has changed.
var apiUnavailableError = regexp.MustCompile(`connection refused|connection to the server .* was refused|connection reset by peer|no answer within|TLS handshake timeout|unexpected EOF|\(ServiceUnavailable\)|etcdserver: `)

// retryUnavailable runs f. While f fails because the API is unavailable, it runs f again, for up to Timeout.
func retryUnavailable(ctx context.Context, f func() error) error {
	return engine.Retry(ctx, Timeout, func(err error) bool { return apiUnavailableError.MatchString(err.Error()) || isRBACMissing(err) }, f)
}

// Shorten returns the last line of err, which contains the cause, without the command lines of kubectl. If ctx has ended, Shorten
// returns the cause of the end of ctx.
func Shorten(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return engine.LastLine(err)
}
