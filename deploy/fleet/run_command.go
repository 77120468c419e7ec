package fleet

import (
	"context"
	"io"
	"path"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

// maxAnswer is the maximum size of the output that Run returns. The largest answer is the list of nodes and pods in JSON: for a
// cluster of a thousand machines it has about 20 MiB.
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

// programOf returns the name of the program in argv, for messages. For `env NAME=VALUE PROGRAM …` it returns PROGRAM and not env.
func programOf(argv []string) string {
	for len(argv) > 1 && (argv[0] == "env" || strings.Contains(argv[0], "=")) {
		argv = argv[1:]
	}
	return path.Base(argv[0])
}

// nodeByName returns the node of the hive with this name. If the hive no longer has the node, it returns a node with the role of
// the machine in the state. The unit of such a node in the evaluation has the name of the role.
func (f *Fleet) nodeByName(name string) nixeval.Node {
	for _, n := range f.hive.Nodes {
		if n.Name == name {
			return n
		}
	}
	m, _, _ := f.options.MachineOf(name) // the error is ignored here, because Target reports it later
	return nixeval.Node{Name: name, Role: m.Role, Unit: m.Role}
}
