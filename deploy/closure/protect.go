package closure

import (
	"context"
	"errors"

	"github.com/nixbench/nixbench/deploy/remote"
)

// rootsDir is the node's folder for garbage collector roots of Protect. It is in /run, so that an
// abandoned deployment protects its closure only until the next boot.
const rootsDir = "/run/nixbench/gcroots"

const linkScript = `mkdir -p "$1" && ln -sfn "$3" "$1/$2"`

// Protect protects a path from the node's garbage collector until Protect is called with the same name and another
// path, or until the next boot. It is needed because the Nix daemon protects received paths only during the copy. In a
// rolling update, the profile of the node refers to these paths much later. Protect runs a command as root.
func (c *Copier) Protect(ctx context.Context, node string, h Host, name, path string) error {
	l, err := c.openLink(ctx, node, h)
	if err != nil {
		return err
	}
	defer l.close()
	if err := l.holdPath(ctx, path); err != nil {
		return err
	}
	return l.protect(ctx, name, path)
}

// holdPath protects a path from the node's garbage collector until the link l is closed.
func (l *link) holdPath(ctx context.Context, path string) error {
	if err := l.ask(func() error { return l.daemon.AddTempRoot(path) }); err != nil {
		return l.newError("protect "+path, l.explain(ctx, err))
	}
	return nil
}

// protect does what Protect does, and starts only one small program on the node. The caller must have called holdPath
// for the path, so that a garbage collection that runs at this moment does not delete the path.
func (l *link) protect(ctx context.Context, name, path string) error {
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
		return l.newError("protect "+path, err)
	}
	return nil
}
