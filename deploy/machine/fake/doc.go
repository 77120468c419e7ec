// Package fake simulates a hypervisor in memory, for the tests of packages that use providers. It passes the same tests
// (libvirt/suite_test.go) as the real provider. It is deterministic: it uses neither the clock nor random numbers.
//
// Further methods of [Hypervisor] observe and change the hypervisor without the provider. With
// [Hypervisor.OnStep] a test makes an operation fail or block at any step:
//
//	h := fake.New()
//	h.OnStep(func(ctx context.Context, s fake.Step) error {
//		if s == (fake.Step{Op: "ensure", Node: "worker-2", Name: "start"}) {
//			return provider.ErrFull
//		}
//		return nil
//	})
package fake
