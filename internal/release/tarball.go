package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
)

// file is a file of an archive.
type file struct {
	name string
	mode int64
	data []byte
}

// tarball returns a compressed tar archive of the files below a folder. It depends only on its arguments and on the time
// of the commit.
func (s *source) tarball(folder string, files []file) ([]byte, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) }) {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: folder + "/" + f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: s.time, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return compress(packed.Bytes())
}

// archiveSettings are the settings of git that change the bytes of an archive, with the values that they have without a configuration.
var archiveSettings = []string{"-c", "tar.umask=0002", "-c", "core.autocrlf=false", "-c", "core.eol=lf", "-c", "core.attributesFile="}

// sourceArchive returns the files of the commit as a compressed tar archive.
func (s *source) sourceArchive(ctx context.Context) ([]byte, error) {
	packed, err := command(ctx, s.dir, nil, "git", append(slices.Clone(archiveSettings), "archive", "--format=tar", "--prefix=nixbench-"+s.version+"/", s.commit)...)
	if err != nil {
		return nil, err
	}
	return compress(packed)
}

func compress(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func keys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }
