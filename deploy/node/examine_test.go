package node

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestReadFindings(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for out, want := range map[string]string{
		"1000010\nrw 500000 900000 100 200 /\nrw 500000 900000 0 0 /home\nrw 0 0 0 0 /tmp\n": "",
		"1000000\nrw 0 65536 100 200 /run\nrw 0 65536 100 200 /run\n":                        "/run is full: 0 KiB of 64 MiB are free (remove files, or reboot the node, which empties it)",
		"1000000\nrw 500000 900000 0 200 /\nro 500000 900000 10 200 /my boot\n":              "/ has no free inodes (remove files, or old generations with nix-collect-garbage -d), /my boot is read-only",
		"900000\nrw 500000 900000 - - /\n":                                                   "its clock is 27h46m40s off (it is 1970-01-11T10:00:00Z there)",
		"sh: date: not found\nnonsense\n":                                                    "",
	} {
		if got := strings.Join(readFindings(out, now), ", "); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
	out, err := exec.Command("sh", "-c", examineScript).CombinedOutput()
	if lines := strings.Split(string(out), "\n"); err != nil || len(lines) < 4 || len(strings.Fields(lines[1])) != 6 || !strings.HasPrefix(lines[1], "rw ") {
		t.Errorf("%v: %s", err, out)
	}
}
