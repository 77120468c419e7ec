// Mkimage makes a container image of one layer from a folder.
//
//	mkimage -o OUT.tar -name NAME:TAG [-name …] [-entrypoint PROGRAM] FOLDER
//
// OUT is an OCI image layout in a tar archive, which "ctr images import" accepts. The
// same folder results in the same bytes: owners are root, times are the epoch. The layer
// is compressed with a fast level, because each machine writes its own copy of the archive.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

func main() {
	var names list
	out := flag.String("o", "", "the archive to write")
	entrypoint := flag.String("entrypoint", "", "the program that a container runs")
	flag.Var(&names, "name", "what the image is called, with a tag")
	flag.Parse()
	if *out == "" || len(names) == 0 || flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*out, names, *entrypoint, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+zstd"
	layout       = `{"imageLayoutVersion":"1.0.0"}`
)

// descriptor points at a blob. Annotations are only used in the index.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func run(out string, names []string, entrypoint, folder string) error {
	layer, err := os.CreateTemp(filepath.Dir(out), ".layer-*")
	if err != nil {
		return err
	}
	defer os.Remove(layer.Name())
	defer layer.Close()
	// An image is what its layers unpacked are; what is stored has a digest of its own.
	unpacked, packed := sha256.New(), sha256.New()
	compressor, err := zstd.NewWriter(io.MultiWriter(layer, packed), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	if err := errors.Join(writeLayer(io.MultiWriter(compressor, unpacked), folder), compressor.Close()); err != nil {
		return err
	}
	layerBlob := descriptor{MediaType: layerType, Digest: fmt.Sprintf("sha256:%x", packed.Sum(nil))}
	if layerBlob.Size, err = layer.Seek(0, io.SeekCurrent); err != nil {
		return err
	}

	runs := map[string]any{"Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	if entrypoint != "" {
		runs["Entrypoint"] = []string{entrypoint}
	}
	config, configBlob, err := encode(configType, map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       runs,
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", unpacked.Sum(nil))}},
	})
	if err != nil {
		return err
	}
	manifest, manifestBlob, err := encode(manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": configBlob, "layers": []descriptor{layerBlob},
	})
	if err != nil {
		return err
	}
	var entries []descriptor
	for _, name := range names {
		colon := strings.LastIndex(name, ":")
		if colon < 0 {
			return fmt.Errorf("%s has no tag", name)
		}
		entry := manifestBlob
		entry.Annotations = map[string]string{
			"io.containerd.image.name":          name,
			"org.opencontainers.image.ref.name": name[colon+1:],
		}
		entries = append(entries, entry)
	}
	index, _, err := encode("", map[string]any{"schemaVersion": 2, "manifests": entries})
	if err != nil {
		return err
	}

	file, err := os.Create(out)
	if err != nil {
		return err
	}
	w := tar.NewWriter(file)
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return errors.Join(
		add(w, "oci-layout", int64(len(layout)), strings.NewReader(layout)),
		add(w, "index.json", int64(len(index)), bytes.NewReader(index)),
		add(w, blobPath(manifestBlob), manifestBlob.Size, bytes.NewReader(manifest)),
		add(w, blobPath(configBlob), configBlob.Size, bytes.NewReader(config)),
		add(w, blobPath(layerBlob), layerBlob.Size, layer),
		w.Close(),
		file.Close(),
	)
}

func encode(mediaType string, value any) ([]byte, descriptor, error) {
	text, err := json.Marshal(value)
	return text, descriptor{MediaType: mediaType, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(text)), Size: int64(len(text))}, err
}

func blobPath(d descriptor) string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }

func add(w *tar.Writer, name string, size int64, content io.Reader) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}

// writeLayer writes what is in folder, in the order of names.
func writeLayer(out io.Writer, folder string) error {
	w := tar.NewWriter(out)
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := ""
		if info.Mode().Type() == fs.ModeSymlink {
			if target, err = os.Readlink(path); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		clean := tar.Header{
			Typeflag: header.Typeflag, Name: name, Linkname: target,
			Size: header.Size, Mode: header.Mode, ModTime: time.Unix(0, 0),
		}
		if d.IsDir() {
			clean.Name += "/"
		}
		if err := w.WriteHeader(&clean); err != nil || !info.Mode().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(w, file)
		return err
	})
	return errors.Join(err, w.Close())
}
