package libvirt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/e2e/lab"
)

// The removal of a volume that stays in use fails after volumeTimeout, although the operation has no deadline.
func TestRemovalOfUsedVolumeHasDeadline(t *testing.T) {
	busy := libvirt.Error{Code: libvirt.ERR_OPERATION_INVALID, Message: "volume 'v' is still in use."}
	h, err := Open("test", provider.Hypervisor{URI: testURI(t), Pool: "p", PoolPath: "/p"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.volumeTimeout = 20 * time.Millisecond
	s := &session{ctx: t.Context(), h: h}
	calls := 0
	err = s.retryWhileInUse("v", func() error { calls++; return busy })
	var e *provider.Error
	if !errors.Is(err, provider.ErrInUse) || !errors.As(err, &e) || e.Fix == "" || calls < 2 {
		t.Errorf("%d calls: err = %v", calls, err)
	}
	calls = 0
	if err := s.retryWhileInUse("v", func() error {
		if calls++; calls == 1 {
			return busy
		}
		return nil
	}); err != nil || calls != 2 {
		t.Errorf("a volume that becomes free: %d calls, err = %v", calls, err)
	}
}

// Clean removes the pool and keeps its folder, at whatever change the run was interrupted.
func TestPoolFolder(t *testing.T) {
	t.Parallel()
	l := lab.Hypervisor(t)
	for name, existed := range map[string]bool{"missing": false, "existing": true} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(l.Dir, "pool-"+name)
			if existed {
				if err := os.Mkdir(folder, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			h, err := Open("lab", provider.Hypervisor{URI: uriOf(l, "lxc"), Pool: "nixbench", PoolPath: folder}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			ensurePool := func() error {
				return h.runOperation(t.Context(), func(s *session) error {
					_, err := s.ensurePool()
					return err
				})
			}
			interrupted := true
			for n := 1; interrupted; n++ {
				changes := 0
				interrupted = false
				h.onChange = func(string) error {
					if changes++; changes < n {
						return nil
					}
					interrupted = true
					return errors.New("interrupted")
				}
				if err := ensurePool(); err == nil && interrupted {
					t.Fatal("the pool was made although the run was interrupted")
				}
				h.onChange = nil
				if err := ensurePool(); err != nil {
					t.Fatal(err)
				}
				if st, err := os.Stat(folder); err != nil || (st.Mode().Perm() == 0o700) != existed {
					t.Fatalf("interrupted before effect %d: folder %v, %v", n, st, err)
				}
				if err := h.runOperation(t.Context(), func(s *session) error {
					return s.cleanPool(provider.Cluster{ID: "0011223344556677"}, true)
				}); err != nil {
					t.Fatal(err)
				}
				if pools := l.Virsh(t, "-c", uriOf(l, "lxc"), "pool-list --all --name"); strings.Contains(pools, "nixbench") {
					t.Errorf("interrupted before effect %d: the pool remains", n)
				}
				if _, err := os.Stat(folder); err != nil {
					t.Fatalf("interrupted before effect %d: after Clean: %v", n, err)
				}
				if !existed {
					if err := os.Remove(folder); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}
