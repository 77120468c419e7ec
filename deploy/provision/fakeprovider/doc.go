// Package fakeprovider is a hypervisor in memory, for the tests of whoever uses
// providers. It passes the same contract suite as the real one. Nothing in it depends
// on time or chance: what it does, it does at once.
//
// A test looks at it and meddles with it behind the provider's back through the
// methods of [Hypervisor], and lets operations fail or hang at any of their steps with
// [Hypervisor.OnStep]:
//
//	h := fakeprovider.New()
//	h.OnStep(func(ctx context.Context, s fakeprovider.Step) error {
//		if s == (fakeprovider.Step{Op: "ensure", Node: "worker-2", Name: "start"}) {
//			return provision.ErrFull
//		}
//		return nil
//	})
package fakeprovider
