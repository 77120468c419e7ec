package health

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

const (
	maxAttempt = 10 * time.Second // time limit of an HTTP request or a TCP connection
	maxAnswer  = 16 << 10         // how many bytes of an answer are read, with its header; the rest is ignored
	maxShown   = 200              // how many characters of an answer an error contains
)

func attemptLimit(c nixeval.HealthCheck) time.Duration {
	if len(c.Command) > 0 {
		return c.Limit()
	}
	return min(maxAttempt, c.Limit())
}

// attempt runs a check once. The error is what the check was about, and the answer, in one line.
func (c Checks) attempt(ctx context.Context, one nixeval.HealthCheck) error {
	host, address := c.host, "127.0.0.1" // where the check runs, and the address of the node from there
	if one.From == nixeval.FromHere {
		here, err := remote.NewLocal(c.node, nil, remote.Options{})
		if err != nil {
			return err
		}
		defer here.Close()
		host, address = here, cmp.Or(c.host.Config().HostName, address) // without a host name, the node is this computer
	}
	subject, run := c.prepare(one, address)
	conn, err := host.Conn(ctx)
	if err != nil {
		return fmt.Errorf("%s: %s", subject, shorten(failure.TextOn(c.node, err)))
	}
	answer, err := run(ctx, conn)
	if err != nil {
		answer = cmp.Or(c.describe(ctx, err), "failed")
	}
	if answer == "" {
		return nil
	}
	return fmt.Errorf("%s: %s", subject, shorten(answer))
}

// runner runs a check once over a connection. answer is the answer because of which the check has not passed, such as `status 503 Service
// Unavailable`. It is empty if the check has passed.
type runner func(ctx context.Context, conn *remote.Conn) (answer string, err error)

// prepare returns what a check is about, such as its URL, and the function that runs the check. address is the address of the node where
// the check runs.
func (c Checks) prepare(one nixeval.HealthCheck, address string) (subject string, run runner) {
	switch {
	case one.TCP != nil:
		target := withHost(*one.TCP, address)
		return target, func(ctx context.Context, conn *remote.Conn) (string, error) {
			accepted, err := conn.Dial(ctx, "tcp", target)
			if err == nil {
				accepted.Close()
			}
			return "", err
		}
	case one.HTTP != nil:
		u, _ := url.Parse(*one.HTTP) // the survey has checked it
		u.Host = withHost(u.Host, address)
		shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path} // the rest may contain a password or a token
		return shown.String(), func(ctx context.Context, conn *remote.Conn) (string, error) { return request(ctx, conn, u) }
	}
	cmd := remote.Cmd{Argv: one.Command, Sudo: true}
	if one.From == nixeval.FromHere {
		cmd.Sudo, cmd.Argv = false, append([]string{"env", "NIXBENCH_NODE=" + c.node, "NIXBENCH_ADDRESS=" + address}, one.Command...)
	}
	return path.Base(one.Command[0]), func(ctx context.Context, conn *remote.Conn) (string, error) { return runCommand(ctx, conn, cmd) }
}

// withHost returns the address with a host if it has none: `:80` becomes `127.0.0.1:80`.
func withHost(address, host string) string {
	if named, port, err := net.SplitHostPort(address); err == nil && named == "" {
		return net.JoinHostPort(host, port)
	}
	return address
}

// request sends an HTTP request, and follows no redirect. The answer is empty if the status is from 200 to 399. It does not use
// [http.Transport], which writes what a server sends unexpectedly to the log of the process.
func request(ctx context.Context, conn *remote.Conn, u *url.URL) (string, error) {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	raw, err := conn.Dial(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return "", err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	stream := raw
	if u.Scheme == "https" {
		stream = tls.Client(raw, &tls.Config{ServerName: u.Hostname()})
	}
	r := &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{"User-Agent": {"nixbench"}}, Close: true}
	if password, set := u.User.Password(); set {
		r.SetBasicAuth(u.User.Username(), password)
	}
	if err := r.Write(stream); err != nil {
		return "", err
	}
	reader := bufio.NewReader(io.LimitReader(stream, maxAnswer))
	answer, err := http.ReadResponse(reader, r)
	for err == nil && answer.StatusCode/100 == 1 && answer.StatusCode != http.StatusSwitchingProtocols { // such as 103 Early Hints: the answer follows
		answer, err = http.ReadResponse(reader, r)
	}
	if err != nil {
		return "", err
	}
	if answer.StatusCode >= 200 && answer.StatusCode < 400 {
		return "", nil
	}
	body, _ := io.ReadAll(answer.Body) // the status is the answer, also if the body is incomplete
	return "status " + strings.TrimSuffix(answer.Status+": "+strings.TrimSpace(string(body)), ": "), nil
}

// runCommand runs a command. If it fails, the answer is its exit status, and the last line that it has printed.
func runCommand(ctx context.Context, conn *remote.Conn, cmd remote.Cmd) (string, error) {
	out, err := conn.Output(ctx, cmd)
	var failed *remote.RunError
	if !errors.As(err, &failed) {
		return "", err
	}
	answer := fmt.Sprintf("exit status %d", failed.ExitStatus)
	if failed.Signal != "" {
		answer = "signal " + failed.Signal
	}
	printed := cmp.Or(strings.TrimSpace(failed.Stderr), strings.TrimSpace(string(out)))
	return strings.TrimSuffix(answer+": "+strings.TrimSpace(printed[strings.LastIndex(printed, "\n")+1:]), ": "), nil
}

func (c Checks) describe(ctx context.Context, err error) string {
	var refused *ssh.OpenChannelError
	switch {
	case ctx.Err() != nil:
		return "no answer"
	case errors.As(err, &refused) && refused.Reason == ssh.Prohibited:
		return `the node's sshd forbids TCP forwarding; use a command, or from = "here"`
	case errors.As(err, &refused):
		return cmp.Or(strings.ToLower(refused.Message), "refused")
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return strings.TrimPrefix(remote.Reason(err), "connect: ")
	}
	return failure.TextOn(c.node, err)
}

// shorten returns the beginning of an answer in one line, without control characters.
func shorten(text string) string {
	shown := []rune(event.Printable(strings.Join(strings.Fields(text), " ")))
	if len(shown) > maxShown {
		return string(shown[:maxShown]) + "…"
	}
	return string(shown)
}
