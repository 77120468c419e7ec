package bench

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
)

// archived are the files and folders of a sweep that the archive of the sweep contains. Keys, tokens and the state of the cluster
// are not in an archive.
var archived = []string{"sweep.json", "source", "facts", "workloads", "trials", closureFile}

// closureFile is the file with the store paths of a sweep's systems, as nix-store --export writes them.
const closureFile = "closure.nar"

// ExportClosure writes the store paths of the sweep's systems into its folder, so that the archive has them. The caller calls RemoveClosure.
func (st *Store) ExportClosure(ctx context.Context) error {
	f, err := os.Create(filepath.Join(st.Folder, closureFile))
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, "nix-store", append([]string{"--export"}, st.Sweep.Closure()...)...)
	cmd.Stdout = f
	return runNixStore(cmd)
}

// RemoveClosure removes the store paths in the sweep's folder.
func (st *Store) RemoveClosure() error { return os.RemoveAll(filepath.Join(st.Folder, closureFile)) }

// ImportClosure adds the store paths in the sweep's folder to the Nix store, if there are some and one is missing.
func (st *Store) ImportClosure(ctx context.Context) error {
	f, err := os.Open(filepath.Join(st.Folder, closureFile))
	if errors.Is(err, fs.ErrNotExist) || !slices.ContainsFunc(st.Sweep.Closure(), func(path string) bool { return !durable.Exists(path) }) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, "nix-store", "--import")
	cmd.Stdin = f
	return runNixStore(cmd)
}

func runNixStore(cmd *exec.Cmd) error {
	var messages strings.Builder
	cmd.Stderr = &messages
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("nix-store %s: %w: %s", cmd.Args[1], err, strings.TrimSpace(messages.String()))
	}
	return nil
}

// Closure returns the store paths of the systems of all configurations.
func (s Sweep) Closure() (out []string) {
	for _, c := range s.Configurations {
		out = append(out, c.Closure...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// IsArchived reports whether the archive of a sweep contains the file with this path in the sweep's folder.
func IsArchived(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return slices.Contains(archived, first) && !isExcluded(path)
}

// excluded are the names of folders in a hive's folder that are not copied: the state of clusters, with their secrets, and the
// git repository.
var excluded = map[string]bool{".nixbench": true, ".git": true}

// ArchivedFile is a file in the archive of a sweep.
type ArchivedFile struct {
	Path   string // in the sweep's folder
	Size   int64
	SHA256 string
}

// crateFile is the file of an archive that describes the other files. nixbench does not read it.
const crateFile = "ro-crate-metadata.json"

// WriteArchive writes the sweep as a compressed tar file, from which the sweep can be repeated. Equal sweeps have equal archives. Symbolic
// links out of the sweep's folder, such as the link `result` of nix build, are left out. If describe is not nil, the archive has a file with
// the description of its files that describe returns.
func (st *Store) WriteArchive(w io.Writer, describe func([]ArchivedFile) ([]byte, error)) error {
	root, err := os.OpenRoot(st.Folder)
	if err != nil {
		return err
	}
	defer root.Close()
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	var files []ArchivedFile
	for _, entry := range archived {
		err := filepath.WalkDir(filepath.Join(st.Folder, entry), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) && slices.Contains([]string{"trials", "facts", closureFile}, entry) {
				return nil // the sweep has not begun, has no facts, or its store paths were not exported
			}
			if err != nil {
				return err
			}
			if d.IsDir() && excluded[d.Name()] {
				return fs.SkipDir
			}
			f, err := st.addToArchive(root, t, path, d)
			if f.Path != "" {
				files = append(files, f)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if describe != nil {
		data, err := describe(files)
		if err == nil {
			err = t.WriteHeader(&tar.Header{Name: st.Sweep.ID + "/" + crateFile, Mode: 0o644, Size: int64(len(data)), ModTime: time.Unix(0, 0)})
		}
		if err == nil {
			_, err = t.Write(data)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// addToArchive adds the file, folder or link with this path to the archive t. It skips special files, and links that lead out of root. It
// returns a description only of a file.
func (st *Store) addToArchive(root *os.Root, t *tar.Writer, path string, d fs.DirEntry) (file ArchivedFile, err error) {
	name, err := filepath.Rel(st.Folder, path)
	if err != nil {
		return file, err
	}
	info, err := d.Info()
	if err != nil {
		return file, err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil || leadsOut(root, name) {
			return file, err
		}
	}
	if !info.IsDir() && !info.Mode().IsRegular() && link == "" {
		return file, nil
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return file, err
	}
	name = filepath.ToSlash(name)
	header.Name, header.ModTime, header.Uid, header.Gid, header.Uname, header.Gname = st.Sweep.ID+"/"+name, time.Unix(0, 0), 0, 0, "", ""
	if err := t.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return file, err
	}
	f, err := os.Open(path)
	if err != nil {
		return file, err
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(t, sum), f)
	return ArchivedFile{name, size, hex.EncodeToString(sum.Sum(nil))}, err
}

// leadsOut reports whether a symbolic link leads out of the folder root, directly or through other links. [os.Root] does not follow such
// links.
func leadsOut(root *os.Root, name string) bool {
	_, err := root.Stat(name)
	return err != nil && !errors.Is(err, fs.ErrNotExist)
}

// maxArchive is the largest size of the files of an archive, in bytes.
const maxArchive = 16 << 30

// ReadArchive extracts sweep.json, the source and the workloads of an archive into a new folder. An archive is untrusted: links that lead
// out of the folder are an error.
func ReadArchive(r io.Reader, folder string) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("it is no archive of a sweep: %w", err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	left, links := int64(maxArchive), []string{}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("it is no archive of a sweep: %w", err)
		}
		_, name, _ := strings.Cut(filepath.ToSlash(filepath.Clean(h.Name)), "/")
		if first, _, _ := strings.Cut(name, "/"); !IsArchived(name) || first == "trials" {
			continue
		}
		if left -= h.Size; left < 0 {
			return fmt.Errorf("the archive contains more than %d GiB", maxArchive>>30)
		}
		if h.Typeflag == tar.TypeSymlink {
			links = append(links, name)
		}
		if err := extract(root, name, h, t); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	for _, name := range links { // create the links at the end, when all files exist, since a link may lead to another one
		if leadsOut(root, name) {
			return fmt.Errorf("the archive contains a link out of its folder: %s", name)
		}
	}
	return nil
}

// extract writes an entry of an archive below the folder root. [os.Root] refuses paths that lead out of the folder through links.
func extract(root *os.Root, name string, h *tar.Header, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		mode := fs.FileMode(0o644)
		if h.Mode&0o100 != 0 {
			mode = 0o755
		}
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	}
	return errors.New("it is neither a file, a folder nor a symbolic link")
}
