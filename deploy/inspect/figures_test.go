package inspect

import (
	"encoding/json"
	"os/exec"
	"testing"
)

func TestParseFigures(t *testing.T) {
	f, err := parseFigures(`{"processors": 4, "memory": 4096, "memoryUsed": 3072, "disk": 1000, "diskUsed": 500, "processorsUsed": 1.5}`)
	if err != nil {
		t.Fatal(err)
	}
	if f.Processors != 4 || f.ProcessorsUsed == nil || *f.ProcessorsUsed != 1.5 || f.Memory != 4096 || f.MemoryUsed != 3072 || f.Disk != 1000 || f.DiskUsed != 500 {
		t.Errorf("%+v", f)
	}
	if f, err = parseFigures(`{"processors": 4, "memory": 4096}`); err != nil || f.ProcessorsUsed != nil {
		t.Errorf("without a control group: %+v, %v", f, err)
	}
	for reported, want := range map[string]float64{"-1": 0, "-1e308": 0, "4": 4, "4.02": 4, "1e308": 4} {
		f, err = parseFigures(`{"processors": 4, "memory": 4096, "processorsUsed": ` + reported + `}`)
		if err != nil || f.ProcessorsUsed == nil || *f.ProcessorsUsed != want {
			t.Errorf("%s busy processors of 4: %+v, %v", reported, f, err)
		}
	}
	for _, bad := range []string{"", "sh: nproc: not found", `{"processors": 2}`, `{"processors": "two", "memory": 1}`, `{"processors": 2, "memory": 1, "diskUsed": -1}`, `{"processors": 2, "memory": 1e300}`} {
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
	if err != nil || f.Processors < 1 || f.MemoryUsed <= 0 || f.MemoryUsed > f.Memory || f.Disk <= 0 || f.DiskUsed <= 0 || f.DiskUsed > f.Disk ||
		f.ProcessorsUsed != nil && (*f.ProcessorsUsed < 0 || *f.ProcessorsUsed > float64(f.Processors)) {
		t.Errorf("%+v, %v\n%s", f, err, out)
	}
}

// Any output of a node is an error, or figures that JSON can have.
func FuzzParseFigures(f *testing.F) {
	f.Add(`{"processors": 4, "memory": 4096, "memoryUsed": 3072, "processorsUsed": 1.5}`)
	f.Add(`{"processors": 1, "memory": 1, "processorsUsed": 1e308}`)
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
