package fleet

import (
	"context"
	"io"
	"path"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

// maxAnswer is the maximal size of the output that Run returns. The nodes and pods of a cluster of a thousand machines have
// about 20 MiB of JSON.
const maxAnswer = 32 << 20

// Run runs a command as root on the named node of the fleet.
func (f *Fleet) Run(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error) {
	h, err := f.Host(ctx, f.nodeByName(node))
	if err != nil {
		return nil, err
	}
	conn, err := h.Conn(ctx)
	if err != nil {
		return nil, err
	}
	until, _ := ctx.Deadline()
	wait := f.options.Send.Wait(event.Event{Node: node, Text: "a command: " + programOf(argv), Until: until})
	defer wait.End()
	return conn.Output(ctx, remote.Cmd{Argv: argv, Stdin: stdin, Sudo: true, MaxOutput: maxAnswer})
}

// RoundTrip returns the time of a request to the SSH server of the named node and its answer.
func (f *Fleet) RoundTrip(ctx context.Context, node string) (time.Duration, error) {
	h, err := f.Host(ctx, f.nodeByName(node))
	if err != nil {
		return 0, err
	}
	conn, err := h.Conn(ctx)
	if err != nil {
		return 0, err
	}
	return conn.RoundTrip(ctx)
}

// programOf returns the name of the program in argv for messages. For `env NAME=VALUE PROGRAM …` it is PROGRAM, and not env.
func programOf(argv []string) string {
	for len(argv) > 1 && (argv[0] == "env" || strings.Contains(argv[0], "=")) {
		argv = argv[1:]
	}
	return path.Base(argv[0])
}

// nodeByName returns the node of the hive with this name. If the hive no longer has the node, it returns a node of the
// recorded machine's role, whose unit of the evaluation has the name of that role.
func (f *Fleet) nodeByName(name string) nixeval.Node {
	for _, n := range f.hive.Nodes {
		if n.Name == name {
			return n
		}
	}
	m, _, _ := f.machineOf(name) // the error is ignored here, because Target reports it later
	return nixeval.Node{Name: name, Role: m.Role, Unit: m.Role}
}
