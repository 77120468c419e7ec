package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
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
	hashes := ReadCache(state.Dir(dir))
	write("full/disk.qcow2", "QFI\xfb…")
	write("full/kernel", "k")
	write("full/cmdline", "quiet\n")
	i, err := load(t.Context(), "w", filepath.Join(dir, "full"), hashes)
	if err != nil || i.Format != provider.QCOW2 || filepath.Base(i.Kernel) != "kernel" || i.Initrd != "" || i.Cmdline != "quiet" || len(i.Hash) != 16 {
		t.Errorf("%+v, %v", i, err)
	}
	write("full/cmdline", "loud\n")
	if other, _ := load(t.Context(), "w", filepath.Join(dir, "full"), hashes); other.Hash == i.Hash {
		t.Error("another command line, the same image")
	}
	write("built/nix-support/x", "")
	write("built/iso/nixos.img", "a disk")
	if i, err := load(t.Context(), "w", filepath.Join(dir, "built"), hashes); err != nil || i.Format != provider.Raw {
		t.Errorf("%+v, %v", i, err)
	}
	write("two/a.raw", "a disk")
	write("two/b.raw", "a disk")
	write("none/a.tar.xz", "x")
	write("packed.raw", "\x1f\x8b…")
	write("initrd/disk.raw", "a disk")
	write("initrd/initrd", "i")
	for path, want := range map[string]string{
		"two": "several", "none": "no disk image", "packed.raw": "compressed", "initrd": "no kernel", "nowhere": "no such file",
	} {
		_, err := load(t.Context(), "w", filepath.Join(dir, path), hashes)
		if err == nil || !strings.Contains(err.Error(), want) || failure.Hint(err) == "" {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := hashes.Save(); err != nil {
		t.Fatal(err)
	}
	// A cached hash is used as long as the file's size and time are the same.
	again := ReadCache(state.Dir(dir))
	kernel := filepath.Join(dir, "full/kernel")
	before, _ := again.Of(t.Context(), kernel)
	write("full/kernel", "K2")
	if after, _ := again.Of(t.Context(), kernel); after == before {
		t.Error("a changed file has its old hash")
	}
}
