package sshtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// Handler runs a command and returns its exit status. The context ends when
// the client closes the session.
type Handler func(ctx context.Context, e *Exec) int

// Exec is a command that a client requests.
type Exec struct {
	User       string
	Line       string   // the line that the client has sent
	Argv       []string // the command itself, without announcements and escalation
	Escalation []string // the escalation command, such as sudo -n -H --; nil if there is none
	Stdin      io.Reader
	Stdout     io.Writer
	Stderr     io.Writer
	Signals    <-chan string // TERM, KILL, …

	signal string // the signal to report; "": report the exit status
}

// shellHandler returns a Handler that runs lines with sh. It kills the command's process group when
// the session ends. If env is nil, sh gets the environment of the test's process.
func shellHandler(env []string) Handler {
	return func(ctx context.Context, e *Exec) int {
		cmd := exec.CommandContext(ctx, "sh", "-c", e.Line)
		kill := func(signal syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, signal) }
		cmd.Cancel = func() error { return kill(syscall.SIGKILL) }
		cmd.Env = env
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		cmd.Stdout, cmd.Stderr = e.Stdout, e.Stderr
		// Use a pipe, because with cmd.Stdin, Wait would wait for the end of the client's input.
		stdin, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			fmt.Fprintln(e.Stderr, err)
			return 126
		}
		go func() {
			io.Copy(stdin, e.Stdin)
			stdin.Close()
		}()
		ended := make(chan struct{})
		defer close(ended)
		go func() {
			for {
				select {
				case name := <-e.Signals:
					kill(unix.SignalNum("SIG" + name))
				case <-ended:
					return
				}
			}
		}()
		cmd.Wait()
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			e.signal = strings.TrimPrefix(unix.SignalName(status.Signal()), "SIG")
		}
		return status.ExitStatus()
	}
}

// serveSession serves one session. A session runs one command at most.
func (s *Server) serveSession(ctx context.Context, user string, offered ssh.NewChannel) {
	channel, requests, err := offered.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines, signals := make(chan string, 1), make(chan string, 16)
	go func() {
		defer cancel() // the client has closed the session
		started := false
		for r := range requests {
			var body struct{ Text string }
			valid := ssh.Unmarshal(r.Payload, &body) == nil
			switch {
			case r.Type == "exec" && valid && !started:
				started = true
				r.Reply(true, nil)
				lines <- body.Text
			case r.Type == "signal" && valid && len(signals) < cap(signals):
				signals <- body.Text
			default:
				r.Reply(false, nil)
			}
		}
	}()
	select {
	case line := <-lines:
		s.commands.Add(1)
		e := &Exec{User: user, Line: line, Stdin: channel, Stdout: channel, Stderr: channel.Stderr(), Signals: signals}
		s.runCommand(ctx, e, channel)
	case <-ctx.Done():
	}
}

// runCommand runs a command and sends its exit status or signal to the client.
func (s *Server) runCommand(ctx context.Context, e *Exec, channel ssh.Channel) {
	var marks []string
	e.Argv, marks, e.Escalation = ParseLine(e.Line)
	if s.printMarks {
		// Print the announcements (marks) of the command here. Normally scripts in front of the command print them, but
		// the Handler replaces the scripts and the command.
		for _, mark := range marks {
			if s.opts.RepeatMarks {
				prefix := mark[:strings.LastIndexByte(mark, '-')+1]
				fmt.Fprintf(e.Stderr, "%[1]spid:1\n%[1]spid:2\n%[1]spass:%[1]spass:", prefix)
			}
			for _, w := range []io.Writer{e.Stderr, e.Stdout} {
				fmt.Fprintf(w, "%s:%d\n", mark, os.Getpid())
			}
		}
	}
	status := s.opts.Handler(ctx, e)
	if ctx.Err() != nil {
		return
	}
	channel.CloseWrite()
	if e.signal != "" {
		channel.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Signal     string
			CoreDumped bool
			Message    string
			Language   string
		}{Signal: e.signal}))
		return
	}
	channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status)}))
}
