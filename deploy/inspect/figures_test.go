package inspect

import (
	"encoding/json"
	"os/exec"
	"testing"
)

func TestParseFigures(t *testing.T) {
	f, err := parseFigures("busy 100.00 5000000\nprocessors 4\nMemTotal: 4096\nMemAvailable: 1024\ndisk 1000 250\ndisk 1000 500\nbusy 100.50 5750000\n")
	if err != nil {
		t.Fatal(err)
	}
	if f.Processors != 4 || f.ProcessorsUsed == nil || *f.ProcessorsUsed != 1.5 || f.Memory != 4<<20 || f.MemoryUsed != 3<<20 || f.Disk != 1000<<10 || f.DiskUsed != 500<<10 {
		t.Errorf("%+v", f)
	}
	if f, err = parseFigures("processors 4\nMemTotal: 4096\nMemAvailable: 1024\n"); err != nil || f.ProcessorsUsed != nil {
		t.Errorf("without a control group: %+v, %v", f, err)
	}
	for _, bad := range []string{"", "processors 2\n", "processors two\nMemTotal: 4\n"} {
		if f, err := parseFigures(bad); err == nil {
			t.Errorf("%q: %+v", bad, f)
		}
	}
}

// The script runs with any sh, and prints what parseFigures reads.
func TestFiguresScript(t *testing.T) {
	out, err := exec.Command("sh", "-c", figuresScript).Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := parseFigures(string(out))
	if err != nil || f.Processors < 1 || f.MemoryUsed <= 0 || f.MemoryUsed > f.Memory || f.Disk <= 0 || f.DiskUsed > f.Disk {
		t.Errorf("%+v, %v\n%s", f, err, out)
	}
}

// Any output of a node is an error, or figures that JSON can have.
func FuzzParseFigures(f *testing.F) {
	f.Add("busy 100.00 5000000\nprocessors 4\nMemTotal: 4096\nMemAvailable: 1024\ndisk 1000 250\nbusy 100.50 5750000\n")
	f.Add("busy nan nan\nprocessors 1\nMemTotal: 1\nbusy inf 1e308\n")
	f.Add("disk 0.5 1e308\nprocessors -1\nMemTotal: 9e300\n")
	f.Fuzz(func(t *testing.T, text string) {
		figures, err := parseFigures(text)
		if err == nil {
			_, err = json.Marshal(figures)
		} else if len(err.Error()) > 2000 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		if figures != nil && err != nil {
			t.Errorf("%+v: %v", figures, err)
		}
	})
}
