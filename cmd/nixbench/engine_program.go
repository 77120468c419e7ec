package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/enginecmd"
	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// engineProgram implements [enginecmd.Program].
type engineProgram struct{ a *app }

func (p engineProgram) Body(body func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return p.a.withView(func(args []string) error { return body(p.a.ctx, args) })
}

func (p engineProgram) OpenCluster(command string, kind engine.Kind, acceptNewHostKeys bool) (*enginecmd.Cluster, error) {
	_, hive, _, err := p.a.loadNodes(nil)
	if err != nil {
		return nil, err
	}
	members := engine.MembersByKind(hive)[kind.Name]
	if len(members) == 0 {
		return nil, newWrongClusterError(command, kind, hive)
	}
	conns := p.a.newFleet(hive, fleetFlags{acceptNew: acceptNewHostKeys}, nil)
	return &enginecmd.Cluster{
		Cluster: engine.Cluster{Name: hive.ClusterName(), Members: members, Run: conns.Run},
		Hive:    hive, Fleet: conns, Dir: p.a.dir,
	}, nil
}

// newWrongClusterError returns the error of a command for clusters of one kind if the hive has no such cluster.
func newWrongClusterError(command string, kind engine.Kind, hive *nixeval.Hive) error {
	text := fmt.Sprintf("%s: no node of the hive is a member of a %s cluster", command, kind.Title)
	others := engine.KindsOf(hive, engineKinds())
	if len(others) == 0 {
		return failure.WithHint(newUsageError("%s", text), "members import modules/"+kind.Name)
	}
	var titles, hints []string
	members := engine.MembersByKind(hive)
	for _, other := range others {
		titles = append(titles, other.Title)
		if usage := describeUsage(other, members); usage != "" {
			hints = append(hints, usage)
		}
	}
	return failure.WithHint(newUsageError("%s: its cluster is %s", text, strings.Join(titles, " and ")), strings.Join(hints, "; "))
}

func (p engineProgram) View() enginecmd.View { return engineView{p.a.view, p.a} }

// engineView implements [enginecmd.View].
type engineView struct {
	*ui.View
	a *app
}

func (v engineView) Note(text string) {
	v.a.sendEvent(event.Event{Kind: event.Message, Level: "note", Time: time.Now(), Text: text})
}

// Pause implements [enginecmd.View]. f may run another program, so an interrupt waits for the end of f.
func (v engineView) Pause(f func()) {
	v.a.paused.Store(true)
	defer v.a.paused.Store(false)
	v.View.Pause(f)
}

func (v engineView) JSON() bool { return v.a.json }
