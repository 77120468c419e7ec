package health

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/nixeval"
)

// newHost connects to an SSH server in this process, which stands in for a node with the name web-1.
func newHost(t *testing.T, o sshtest.Options) *remote.Host {
	t.Helper()
	s, err := sshtest.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, sshtest.GeneratePrivateKey(), 0o600); err != nil {
		t.Fatal(err)
	}
	h := remote.NewHost(sshconfig.Config{Node: "web-1", HostName: "127.0.0.1", Port: s.Port(), User: "root", Network: "tcp",
		IdentityFiles: []string{key}, IdentitiesOnly: true, HostKeys: []ssh.PublicKey{s.Key()}}, remote.Options{})
	t.Cleanup(func() { h.Close() })
	return h
}

// serve answers HTTP requests, and returns the URL and the address of the server.
func serve(t *testing.T, answer http.HandlerFunc) (url, address string) {
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections) // called first: a handler may wait for its client
	return s.URL, s.Listener.Addr().String()
}

// listen accepts TCP connections, and calls answer for each.
func listen(t *testing.T, answer func(net.Conn)) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				answer(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// write writes a text again and again, until the client closes the connection.
func write(w io.Writer, text string) {
	for _, err := io.WriteString(w, text); err == nil; _, err = io.WriteString(w, text) {
	}
}

func TestAwait(t *testing.T) {
	t.Parallel()
	status := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, text)
		}
	}
	closed := listen(t, func(net.Conn) {})
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := refused.Addr().String()
	refused.Close()
	for name, test := range map[string]struct {
		answer http.HandlerFunc // of an HTTP server, unless check names another address
		check  nixeval.HealthCheck
		server sshtest.Options
		want   string // a regular expression for the error; empty: the check passes
	}{
		"ok":          {answer: status(200, "fine")},
		"redirect":    {answer: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://"+free, http.StatusFound) }},
		"early hints": {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) }},
		"endless 103": {check: nixeval.HealthCheck{HTTP: ptr("http://" + listen(t, func(c net.Conn) { write(c, "HTTP/1.1 103 Early Hints\r\n\r\n") }))}, want: `: (unexpected EOF|malformed HTTP response .*) \(`},
		"wrong":       {answer: status(503, "no database\nmore"), want: `^health check web: http://127.0.0.1:\d+: status 503 Service Unavailable: no database more \([23] attempts in 1s\)$`},
		"hostile":     {answer: status(500, "a\x1b[2J\u202e\r\nb"), want: `: status 500 Internal Server Error: a\\u001b\[2J\\u202e b \(`},
		"long":        {answer: status(500, strings.Repeat("x", 1<<20)), want: `^.{0,80}: status 500 Internal Server Error: x{100,200}… \(`},
		"no answer":   {answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, want: `: no answer \(1 attempt in 1s\)$`},
		"endless":     {answer: func(w http.ResponseWriter, _ *http.Request) { write(w, "more ") }},
		"endless 500": {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); write(w, "more ") }, want: `^.{0,80}: status 500 Internal Server Error: (more ){30,40}m?…? ?\(`},
		"endless header": {check: nixeval.HealthCheck{HTTP: ptr("http://" + listen(t, func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			write(c, "X-More: 12345678901234567890\r\n")
		}))}, want: `: unexpected EOF \(`},
		"not HTTP":            {check: nixeval.HealthCheck{HTTP: ptr("http://" + listen(t, func(c net.Conn) { io.WriteString(c, "SSH-2.0-\x07\r\n\r\n") }))}, want: `: malformed HTTP response "SSH-2.0-\\a" \(`},
		"from here":           {check: nixeval.HealthCheck{From: "here"}, answer: status(404, ""), want: `: status 404 Not Found \(`},
		"tcp":                 {check: nixeval.HealthCheck{TCP: &closed}},
		"tcp from here":       {check: nixeval.HealthCheck{TCP: ptr(closed[strings.LastIndex(closed, ":"):]), From: "here"}},
		"tcp refused":         {check: nixeval.HealthCheck{TCP: &free}, want: `^health check web: ` + free + `: open failed \(`}, // sshd gives the reason
		"refused from here":   {check: nixeval.HealthCheck{TCP: &free, From: "here"}, want: `^health check web: ` + free + `: connection refused \(`},
		"forwarding":          {check: nixeval.HealthCheck{TCP: &closed}, server: sshtest.Options{ForbidForwarding: true}, want: `forbids TCP forwarding; use a command, or from = "here"`},
		"https":               {check: nixeval.HealthCheck{HTTP: ptr(newTLSServer(t, "127.0.0.1"))}},
		"https, other name":   {check: nixeval.HealthCheck{HTTP: ptr(newTLSServer(t, "localhost"))}, want: `: tls: failed to verify certificate: x509: certificate is valid for .*, not localhost \(`},
		"command":             {check: nixeval.HealthCheck{Command: []string{"test", "a b", "=", "a b"}}},
		"command fails":       {check: nixeval.HealthCheck{Command: []string{"sh", "-c", "echo out; echo one >&2; printf 'bad \\033[31m' >&2; exit 3"}}, want: `^health check web: sh: exit status 3: bad \\u001b\[31m \(`},
		"command prints":      {check: nixeval.HealthCheck{Command: []string{"sh", "-c", "echo inactive; exit 3"}}, want: `: exit status 3: inactive \(`},
		"command with much":   {check: nixeval.HealthCheck{Command: []string{"sh", "-c", "head -c 1000000 /dev/zero"}}},
		"command floods":      {check: nixeval.HealthCheck{Command: []string{"yes"}}, want: `its output: `},
		"command hangs":       {check: nixeval.HealthCheck{Command: []string{"sleep", "60"}}, want: `: sleep: no answer \(1 attempt in 1s\)$`},
		"command here":        {check: nixeval.HealthCheck{From: "here", Command: []string{"sh", "-c", `test "$NIXBENCH_NODE,$NIXBENCH_ADDRESS" = web-1,127.0.0.1`}}},
		"command here fails":  {check: nixeval.HealthCheck{From: "here", Command: []string{"false"}}, want: `^health check web: false: exit status 1 \(`},
		"command not present": {check: nixeval.HealthCheck{From: "here", Command: []string{"nosuch"}}, want: `: nosuch: exit status 127: .*nosuch.*`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := test.check
			if test.answer != nil {
				url, _ := serve(t, test.answer)
				one.HTTP = &url
			}
			if one.From == "" {
				one.From = nixeval.FromNode
			}
			one.Timeout = 1
			if test.want == "" {
				one.Timeout = 30
			}
			checks := Checks{"web-1", newHost(t, test.server), map[string]nixeval.HealthCheck{"web": one}}
			err := checks.Await(t.Context(), event.Check, nil)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !regexp.MustCompile(test.want).MatchString(err.Error())) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			if err != nil && strings.ContainsAny(err.Error(), "\x1b\x07\r\n") {
				t.Errorf("a control character: %q", err)
			}
		})
	}
}

func ptr(s string) *string { return &s }

// TestMain makes the certificate of [httptest] an authority of this computer.
func TestMain(m *testing.M) {
	s := httptest.NewTLSServer(nil)
	file, err := os.CreateTemp("", "health-*.pem")
	if err == nil {
		err = pem.Encode(file, &pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	}
	if err != nil {
		panic(err)
	}
	os.Setenv("SSL_CERT_FILE", file.Name())
	s.Close()
	status := m.Run()
	os.Remove(file.Name())
	os.Exit(status)
}

// newTLSServer returns the URL of a server whose certificate is for 127.0.0.1, with another host.
func newTLSServer(t *testing.T, host string) string {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return strings.Replace(s.URL, "127.0.0.1", host, 1)
}

// A check is repeated until it passes. The wait reports the last answer. The other checks of the node run at the same time, and end when
// one has failed. The error names all that have not passed.
func TestAwaitRepeats(t *testing.T) {
	t.Parallel()
	requests := atomic.Int64{}
	late, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) < 8 { // for longer than a wait that is not reported
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	waits := make(chan event.Event, 100)
	send := func(e event.Event) { waits <- e }
	checks := Checks{"web-1", newHost(t, sshtest.Options{}), map[string]nixeval.HealthCheck{"web": {HTTP: &late, From: "node", Timeout: 60}}}
	if err := checks.Await(t.Context(), event.Confirm, send); err != nil || requests.Load() != 8 {
		t.Errorf("%v after %d requests", err, requests.Load())
	}
	e := <-waits
	if e.Kind != event.Waiting || e.Node != "web-1" || e.Phase != event.Confirm || e.Text != "health check web: "+late+": status 503 Service Unavailable" || e.Until.Sub(e.Since) < 59*time.Second {
		t.Errorf("%+v", e)
	}
	checks.ByName = map[string]nixeval.HealthCheck{
		"a": {Command: []string{"false"}, From: "here", Timeout: 1}, "b": {Command: []string{"true"}, From: "here", Timeout: 1}, "c": {Command: []string{"sleep", "60"}, From: "here", Timeout: 60},
	}
	if err := checks.Await(t.Context(), event.Check, nil); err == nil || !regexp.MustCompile(`^health check a: .* in 1s\); health check c: sleep: no answer \(1 attempt in [1-9]s\)$`).MatchString(err.Error()) || checks.Limit() != time.Minute {
		t.Errorf("%v, limit %v", err, checks.Limit())
	}
}

// A cancelled wait returns the cause. If its deadline has passed, it returns the last answer.
func TestAwaitCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	url, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel(interrupted)
		<-r.Context().Done()
	})
	checks := Checks{"web-1", newHost(t, sshtest.Options{}), map[string]nixeval.HealthCheck{"web": {HTTP: &url, From: "node", Timeout: 60}}}
	if err := checks.Await(ctx, event.Check, nil); !errors.Is(err, interrupted) {
		t.Error(err)
	}
	limited, cancelLimited := context.WithTimeout(t.Context(), time.Second)
	defer cancelLimited()
	if err := checks.Await(limited, event.Check, nil); err == nil || !strings.Contains(err.Error(), ": no answer (1 attempt in ") {
		t.Error(err)
	}
}

// Probe runs each check once.
func TestProbe(t *testing.T) {
	t.Parallel()
	requests := atomic.Int64{}
	_, address := serve(t, func(w http.ResponseWriter, _ *http.Request) { requests.Add(1); w.WriteHeader(500) })
	port := address[strings.LastIndex(address, ":"):]
	checks := Checks{"web-1", newHost(t, sshtest.Options{}), map[string]nixeval.HealthCheck{
		"web": {HTTP: ptr("http://me:secret@" + port + "/healthz?token=secret"), From: "node", Timeout: 30}, "port": {TCP: &port, From: "node", Timeout: 30},
	}}
	err := checks.Probe(t.Context())
	if err == nil || err.Error() != "health check web: http://"+address+"/healthz: status 500 Internal Server Error" || requests.Load() != 1 {
		t.Errorf("%v, %d requests", err, requests.Load())
	}
	if err := (Checks{}).Await(t.Context(), event.Check, nil); err != nil || (Checks{}).Limit() != 0 {
		t.Errorf("no checks: %v", err)
	}
}
