package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

func TestImages(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("full/disk.qcow2", "QFI\xfb…")
	write("full/kernel", "k")
	write("full/cmdline", "quiet\n")
	i, err := readImage("w", filepath.Join(dir, "full"))
	if err != nil || i.Format != provider.QCOW2 || filepath.Base(i.Kernel) != "kernel" || i.Initrd != "" || i.Cmdline != "quiet" || len(i.Hash) != 16 {
		t.Errorf("%+v, %v", i, err)
	}
	write("full/cmdline", "loud\n")
	if other, _ := readImage("w", filepath.Join(dir, "full")); other.Hash == i.Hash {
		t.Error("another command line, the same image")
	}
	write("built/nix-support/x", "")
	write("built/iso/nixos.img", "a disk")
	if i, err := readImage("w", filepath.Join(dir, "built")); err != nil || i.Format != provider.Raw {
		t.Errorf("%+v, %v", i, err)
	}
	write("two/a.raw", "a disk")
	write("two/b.raw", "a disk")
	write("none/a.tar.xz", "x")
	write("packed.raw", "\x1f\x8b…")
	write("initrd/disk.raw", "a disk")
	write("initrd/initrd", "i")
	for path, want := range map[string]string{
		"two": "not 2", "none": "not 0", "packed.raw": "compressed", "initrd": "no kernel", "nowhere": "no such file",
	} {
		_, err := readImage("w", filepath.Join(dir, path))
		if err == nil || !strings.Contains(err.Error(), want) || failure.Hint(err) == "" {
			t.Errorf("%s: %v", path, err)
		}
	}
	kernel, before := filepath.Join(dir, "full/kernel"), i.Hash
	write("full/cmdline", "quiet\n")
	if again, _ := readImage("w", filepath.Join(dir, "full")); again.Hash != before {
		t.Error("unchanged files have another hash")
	}
	if err := os.Chtimes(kernel, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if after, _ := readImage("w", filepath.Join(dir, "full")); after.Hash == before {
		t.Error("a changed file has its old hash")
	}
}
