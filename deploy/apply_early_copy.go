package deploy

import (
	"context"
	"sync"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/nixeval"
)

// earlyCopies copies systems to nodes while other systems are still being evaluated or built. It activates nothing.
// The copies begin only when all questions of the run are answered and the engines have accepted their versions. If
// the run fails afterwards, the copied paths stay on the nodes like those of a failed deployment: a root in /run
// protects them until the next boot, so that the next run does not copy them again.
//
// A copy that fails is repeated by the deployment of the node, which reports the error if there still is one.
//
// The methods may be called on nil: then nothing is copied early.
type earlyCopies struct {
	run       *run
	nodes     []nixeval.Node
	inspected inspections
	ctx       context.Context // of the copies
	cancel    context.CancelFunc
	slots     chan struct{} // limits the nodes that are copied to or deployed at once; nil: no limit

	allowOnce, closeOnce sync.Once
	allowed              chan struct{} // is closed when copies may begin
	closed               chan struct{} // is closed when no further copy may begin

	mu     sync.Mutex // guards copies, and that nothing begins after closed
	copies map[string]*earlyCopy
	all    sync.WaitGroup
}

// earlyCopy is the copy of a system to a node.
type earlyCopy struct {
	task node.Task
	done chan struct{}
	err  error // valid once done is closed
}

// newEarlyCopies returns nil if systems must not be copied early: with --max-unavailable and
// --rollback-all-on-failure, the nodes of a wave that may never begin are left alone. A dry activation
// does not protect the system on the node for a longer time.
func (r *run) newEarlyCopies(ctx context.Context, nodes []nixeval.Node, inspected inspections) *earlyCopies {
	if r.Goal == node.UploadKeys || r.Goal == node.DryActivate || r.RollbackAll || r.MaxUnavailable.Of(len(nodes)) < len(nodes) {
		return nil
	}
	e := &earlyCopies{run: r, nodes: nodes, inspected: inspected, copies: map[string]*earlyCopy{}, allowed: make(chan struct{}), closed: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancel(ctx)
	if r.Parallel > 0 {
		e.slots = make(chan struct{}, r.Parallel)
	}
	return e
}

// allow lets copies begin.
func (e *earlyCopies) allow() {
	if e != nil {
		e.allowOnce.Do(func() { close(e.allowed) })
	}
}

// close prevents that further copies begin. Those that have begun continue.
func (e *earlyCopies) close() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closeOnce.Do(func() { close(e.closed) })
}

// stop cancels all copies, and waits until they have ended.
func (e *earlyCopies) stop() {
	if e != nil {
		e.close()
		e.cancel()
		e.all.Wait()
	}
}

// copyBatch starts to copy systems that were built to their nodes. err is the error of other builds of the batch.
func (e *earlyCopies) copyBatch(built map[string]nixeval.Closure, err error) {
	if e == nil {
		return
	}
	if err != nil && !e.run.KeepGoing {
		e.close() // the run will fail
		return
	}
	if e.run.keepClosures(built) != nil {
		return // reported when everything is built
	}
	e.run.Copier.Expect(outPaths(built))
	for _, n := range e.nodes {
		if c, ok := built[n.Unit]; ok {
			e.all.Go(func() { e.copyToNode(n, c) })
		}
	}
}

// copyToNode copies the system to a node when the node has been inspected and there is a slot.
func (e *earlyCopies) copyToNode(n nixeval.Node, c nixeval.Closure) {
	for _, ready := range []<-chan struct{}{e.inspected[n.Name].done, e.allowed} {
		select {
		case <-ready:
		case <-e.closed:
			return
		}
	}
	if e.slots != nil {
		select {
		case e.slots <- struct{}{}:
			defer func() { <-e.slots }()
		case <-e.closed:
			return
		}
	}
	if current := e.begin(n, c); current != nil {
		current.err = failure.Recover(func() error { return e.run.nodeChanger().Transfer(e.ctx, current.task, e.run.nodeOptions()) })
		close(current.done)
	}
}

// begin records that the copy to a node begins. It returns nil if the node's system must not be copied early.
func (e *earlyCopies) begin(n nixeval.Node, c nixeval.Closure) *earlyCopy {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isClosed() || !e.mayCopy(n, c) {
		return nil
	}
	current := &earlyCopy{task: node.Task{Node: n, Closure: c}, done: make(chan struct{})}
	e.copies[n.Name] = current
	return current
}

func (e *earlyCopies) isClosed() bool {
	select {
	case <-e.closed:
		return true
	default:
		return false
	}
}

// enter waits until the node's copy has ended, and until fewer nodes than allowed are copied to or deployed. The
// caller calls leave after the deployment of the node.
func (e *earlyCopies) enter(name string) (leave func()) {
	if e == nil {
		return func() {}
	}
	if current := e.copyOf(name); current != nil {
		<-current.done
	}
	if e.slots == nil {
		return func() {}
	}
	e.slots <- struct{}{}
	return func() { <-e.slots }
}

// isCopied reports whether the system is on the node.
func (e *earlyCopies) isCopied(name, system string) bool {
	if e == nil {
		return false
	}
	current := e.copyOf(name)
	if current == nil || current.task.Closure.Out != system {
		return false
	}
	<-current.done
	return current.err == nil
}

func (e *earlyCopies) copyOf(name string) *earlyCopy {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.copies[name]
}
