package bench

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// An archive has the source, the jobs and the results, and neither the state of the cluster nor the repository. It is equal when it is written
// again.
func TestArchive(t *testing.T) {
	r := newRunner(t, benchmark(), &fakeCluster{})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	folder := r.Store.Folder
	for name, text := range map[string]string{
		"source/hive.nix": "{ }", "source/sub/.nixbench/x/secrets/key": "SECRET", "source/.git/config": "SECRET", ".nixbench/reservation/secrets/key": "SECRET",
		"facts/a.json": "{ }", "gcroots/x": "SECRET",
	} {
		write(t, filepath.Join(folder, name), text)
	}
	for name, to := range map[string]string{"link.nix": "hive.nix", "dangling": "nothing", "result": "/nix/store", "out": "../../../x"} {
		if err := os.Symlink(to, filepath.Join(folder, "source", name)); err != nil {
			t.Fatal(err)
		}
	}
	var a, b bytes.Buffer
	if err := r.Store.WriteArchive(&a); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := os.Chtimes(filepath.Join(folder, "source/hive.nix"), now, now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := r.Store.WriteArchive(&b); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Errorf("two archives of a sweep differ, %v", err)
	}
	z, err := gzip.NewReader(bytes.NewReader(a.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(z); err != nil || strings.Contains(text.String(), "SECRET") || !strings.Contains(text.String(), "result.json") {
		t.Errorf("the archive has a secret or no result, %v", err)
	}

	to := filepath.Join(t.TempDir(), "copy")
	if err := ReadArchive(&a, to); err != nil {
		t.Fatal(err)
	}
	st, err := Open(to)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Store.Sweep, st.Sweep); diff != "" {
		t.Error(diff)
	}
	if _, err := st.ReadWorkload("a"); err != nil {
		t.Error(err)
	}
	if target, err := os.Readlink(filepath.Join(to, "source/link.nix")); err != nil || target != "hive.nix" {
		t.Errorf("%q, %v", target, err)
	}
	for name, want := range map[string]bool{"dangling": true, "result": false, "out": false} {
		if _, err := os.Lstat(filepath.Join(to, "source", name)); (err == nil) != want {
			t.Errorf("%s is in the archive: %v", name, err)
		}
	}
	if p, err := st.ReadProgress(); err != nil || p.Done != 0 {
		t.Errorf("the copy has results: %+v, %v", p, err)
	}
}

// compress returns an archive with entries without content.
func compress(t testing.TB, entries ...*tar.Header) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range entries {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// An archive neither writes outside of its folder nor leaves a link that leads out of it. An entry without a target is a file.
func FuzzReadArchive(f *testing.F) {
	f.Add("x/source/s/f", "", "x/source/l", "s/f", "x/source/l/e", "../../y")
	f.Add("x/source/p/d", "../s", "x/source/p/e", "d/../../..", "x/sweep.json", "")
	f.Fuzz(func(t *testing.T, name1, link1, name2, link2, name3, link3 string) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		for _, entry := range [][2]string{{name1, link1}, {name2, link2}, {name3, link3}} {
			h := &tar.Header{Name: entry[0], Linkname: entry[1], Typeflag: tar.TypeSymlink}
			if h.Linkname == "" {
				h.Typeflag = tar.TypeReg
			}
			if w.WriteHeader(h) != nil {
				return // no archive can have such a name
			}
		}
		if err := errors.Join(w.Close(), z.Close()); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		err := ReadArchive(&b, filepath.Join(dir, "sweep"))
		if entries, _ := os.ReadDir(dir); len(entries) > 1 {
			t.Errorf("outside of the folder: %v", entries)
		}
		if err != nil {
			return
		}
		inside, err := filepath.EvalSymlinks(filepath.Join(dir, "sweep"))
		if err != nil {
			t.Fatal(err)
		}
		_ = filepath.WalkDir(inside, func(path string, d fs.DirEntry, _ error) error {
			if to, err := filepath.EvalSymlinks(path); err == nil && to != inside && !strings.HasPrefix(to, inside+"/") {
				t.Errorf("%s leads to %s", path, to)
			}
			return nil
		})
	})
}

// An archive from elsewhere can neither write outside of its folder nor bring the state of a cluster.
func TestHostileArchive(t *testing.T) {
	for name, link := range map[string]string{
		"x/source/../../../evil": "", "x/source/.nixbench/c/state.json": "", "/source/evil": "", "x/source/out/evil": "../../..", "x/workloads/dev": "device",
	} {
		dir := t.TempDir()
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		var headers []*tar.Header
		switch link {
		case "":
		case "device":
			headers = append(headers, &tar.Header{Name: name, Typeflag: tar.TypeChar, Mode: 0o644})
		default:
			headers = append(headers, &tar.Header{Name: filepath.Dir(name), Typeflag: tar.TypeSymlink, Linkname: link})
		}
		headers = append(headers, &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 4})
		for _, h := range headers {
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if h.Size > 0 {
				_, _ = w.Write([]byte("evil"))
			}
		}
		_ = w.Close()
		_ = z.Close()
		err := ReadArchive(&b, filepath.Join(dir, "sweep"))
		outside := ""
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
			if d.Type().IsRegular() && (!strings.HasPrefix(path, filepath.Join(dir, "sweep")+"/") || strings.Contains(path, ".nixbench")) {
				outside = path
			}
			return nil
		})
		if outside != "" {
			t.Errorf("%s: wrote %s", name, outside)
		}
		if link != "" && err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for name, entries := range map[string][]*tar.Header{
		"absolute link": {{Name: "x/source/l", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}},
		"link out":      {{Name: "x/source/l", Typeflag: tar.TypeSymlink, Linkname: "../../y"}},
		"links out together": {{Name: "x/source/s/", Typeflag: tar.TypeDir}, {Name: "x/source/p/q/d", Typeflag: tar.TypeSymlink, Linkname: "../../s"},
			{Name: "x/source/p/q/e", Typeflag: tar.TypeSymlink, Linkname: "d/../../../y"}},
	} {
		if err := ReadArchive(bytes.NewReader(compress(t, entries...)), filepath.Join(t.TempDir(), "sweep")); err == nil || !strings.Contains(err.Error(), "the archive contains") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for text, want := range map[string]string{
		`{"version":1,"source":"../x","configurations":[{}]}`: "its source is outside", `{"version":1,"source":"hive.nix"}`: "no configurations",
		`{"version":1,"source":"hive.nix","configurations":[{}],"trials":[{"number":3,"configuration":7,"cell":{"workload":"a"}}]}`: "trial 3",
		`{"version":1,"source":"hive.nix","configurations":[{}],"trials":[{"number":3,"cell":{"workload":"../a"}}]}`:                "trial 3",
		`{"version":9}`: "version 9",
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "sweep.json"), text)
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
