package fleet

import "testing"

// A command that is waited for is named without what may be secret.
func TestProgramOf(t *testing.T) {
	for _, test := range []struct {
		argv []string
		want string
	}{
		{[]string{"/run/current-system/sw/bin/kubeadm", "token", "create", "abc.def"}, "kubeadm"},
		{[]string{"sh", "-c", "echo hunter2"}, "sh"},
		{[]string{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "--server=https://127.0.0.1:6443", "drain", "w-1"}, "kubectl"},
		{[]string{"env", "SLURM_TIME_FORMAT=%s", "scontrol", "--oneliner"}, "scontrol"},
	} {
		if got := programOf(test.argv); got != test.want {
			t.Errorf("%q: %q, want %q", test.argv, got, test.want)
		}
	}
}
