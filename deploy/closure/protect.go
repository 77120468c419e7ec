package closure

import (
	"context"
	"errors"

	"github.com/nixbench/nixbench/deploy/remote"
)

// rootsDir is the node's folder for garbage collector roots. It is in /run, so that an
// abandoned deployment protects its closure only until the next boot.
const rootsDir = "/run/nixbench/gcroots"

const linkScript = `mkdir -p "$1" && ln -sfn "$3" "$1/$2"`

// protect calls copy. Unless name is empty, it then links the path in rootsDir, and starts only one small program on the node for it.
// Before, it protects the path until the link l is closed, so that a garbage collection that runs at this moment does not delete the
// path.
func (l *link) protect(ctx context.Context, path, name string, copy func() error) error {
	if name == "" {
		return copy()
	}
	if err := l.ask(func() error { return l.daemon.AddTempRoot(path) }); err != nil {
		return newError(l.node, "protect "+path, l.explain(ctx, err), "")
	}
	if err := copy(); err != nil {
		return err
	}
	root := rootsDir + "/" + name
	run := func(argv ...string) error {
		return l.conn.Run(ctx, remote.Cmd{Argv: argv, Name: "link " + root, Sudo: true})
	}
	err := run("ln", "-sfn", path, root)
	if errors.As(err, new(*remote.RunError)) { // the folder does not exist
		err = run("sh", "-c", linkScript, "sh", rootsDir, name, path)
	}
	if err == nil {
		if err = l.ask(func() error { return l.daemon.AddIndirectRoot(root) }); err != nil {
			err = l.explain(ctx, err)
		}
	}
	if err != nil {
		return newError(l.node, "protect "+path, err, "")
	}
	return nil
}
