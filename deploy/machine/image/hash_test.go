package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nixbench/nixbench/deploy/state"
)

// The hash depends on contents and offsets, and not on holes.
func TestSparseHash(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, size int64, holes bool, at ...int64) string {
		path := filepath.Join(dir, name)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if holes {
			err = f.Truncate(size)
		} else {
			_, err = f.Write(make([]byte, size))
		}
		for _, a := range at {
			if _, writeErr := f.WriteAt([]byte("data"), a); writeErr != nil {
				t.Fatal(writeErr)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		h, err := ReadCache(state.Dir(dir)).Of(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	const size = 5<<20 + 17
	full := file("full", size, false, 0, 3<<20+5)
	if sparse := file("sparse", size, true, 0, 3<<20+5); sparse != full {
		t.Error("holes make another hash")
	}
	for name, other := range map[string]string{
		"elsewhere": file("elsewhere", size, true, 0, 4<<20), "less": file("less", size, true, 0), "shorter": file("shorter", size-1, true, 0, 3<<20+5),
		"empty": file("empty", size, true), "nothing": file("nothing", 0, true),
	} {
		if other == full {
			t.Errorf("%s has the same hash", name)
		}
	}
	if file("end", size, true, size-4) == file("end2", size, true, size-5) {
		t.Error("the last block does not count")
	}
}
