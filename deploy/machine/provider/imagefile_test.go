package provider

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An image in another format is detected before the upload.
func TestCheckImage(t *testing.T) {
	const cluster = 1 << 16
	whole := make([]byte, cluster)
	be := binary.BigEndian
	copy(whole, "QFI\xfb")
	be.PutUint32(whole[4:], 3)
	be.PutUint64(whole[24:], 1<<30)
	change := func(f func([]byte) []byte) []byte { return f(append([]byte(nil), whole...)) }
	for name, test := range map[string]struct {
		data   []byte
		kind   Kind
		format Format
		bad    string
	}{
		"whole":           {whole, VM, QCOW2, ""},
		"raw":             {make([]byte, cluster), VM, Raw, ""},
		"container":       {make([]byte, cluster), Container, Raw, ""},
		"empty":           {nil, VM, QCOW2, "too short"},
		"qcow2 container": {whole, Container, QCOW2, "containers need"},
		"on another":      {change(func(b []byte) []byte { b[15] = 72; return b }), VM, QCOW2, "another image"},
	} {
		file := filepath.Join(t.TempDir(), "image")
		if err := os.WriteFile(file, test.data, 0o644); err != nil {
			t.Fatal(err)
		}
		format, size, err := ReadImageFile(file)
		if err == nil {
			err = CheckImage(Image{Disk: file, Format: format}, test.kind)
		}
		if test.bad == "" {
			if err != nil || format != test.format {
				t.Errorf("%s: %s, %v", name, format, err)
			}
			if test.format == QCOW2 && size != 1<<30 {
				t.Errorf("%s: size %d", name, size)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := ReadImageFile("/nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of no file: %v", err)
	}
}
