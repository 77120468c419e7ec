package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// build writes the files of the release to the folder output, which must not exist. The folder appears when it is
// complete.
func (s *source) build(ctx context.Context, platforms []platform, output string, log io.Writer) error {
	output, err := filepath.Abs(output)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(output); err == nil {
		return fmt.Errorf("%s exists; remove it, or choose another folder with --output", output)
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(filepath.Dir(output), ".release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	work, out := filepath.Join(scratch, "work"), filepath.Join(scratch, "out")
	for _, dir := range []string{work, out} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	shared, err := s.sharedFiles(ctx, work)
	if err != nil {
		return err
	}
	sums := map[string][32]byte{}
	put := func(name string, data []byte) error {
		sums[name] = sha256.Sum256(data)
		fmt.Fprintf(log, "%9d  %s\n", len(data), name)
		return os.WriteFile(filepath.Join(out, name), data, 0o644)
	}
	for _, p := range platforms {
		program := filepath.Join(work, p.String())
		if err := s.compile(ctx, p, program); err != nil {
			return err
		}
		data, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		bom, err := s.sbom(program, data)
		if err != nil {
			return err
		}
		name := "nixbench-" + s.version + "-" + p.String()
		archive, err := s.tarball(name, append([]file{{"bin/nixbench", 0o755, data}}, shared...))
		if err != nil {
			return err
		}
		if err := put(name+".tar.gz", archive); err != nil {
			return err
		}
		if err := put(name+".cdx.json", bom); err != nil {
			return err
		}
	}
	sourceArchive, err := s.sourceArchive(ctx)
	if err != nil {
		return err
	}
	if err := put("nixbench-"+s.version+"-source.tar.gz", sourceArchive); err != nil {
		return err
	}
	var list strings.Builder // in the format of sha256sum
	for _, name := range slices.Sorted(keys(sums)) {
		fmt.Fprintf(&list, "%x  %s\n", sums[name], name)
	}
	if err := put("SHA256SUMS", []byte(list.String())); err != nil {
		return err
	}
	return os.Rename(out, output)
}

// compile builds the program for a platform. The arguments are complete: no setting of this computer changes the result.
func (s *source) compile(ctx context.Context, p platform, to string) error {
	env := []string{"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOENV=off", "GOWORK=off", "GODEBUG="}
	_, err := command(ctx, s.dir, env, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly",
		"-ldflags", fmt.Sprintf("-s -w -buildid= -X main.version=%s -X main.commit=%.12s", s.version, s.commit), "-o", to, "./cmd/nixbench")
	return err
}

// sharedFiles returns the files that all archives contain. It runs a program for this computer to get the manual pages
// and the completions.
func (s *source) sharedFiles(ctx context.Context, work string) ([]file, error) {
	program, manuals := filepath.Join(work, "native"), filepath.Join(work, "man1")
	if err := s.compile(ctx, platform{runtime.GOOS, runtime.GOARCH}, program); err != nil {
		return nil, err
	}
	if _, err := command(ctx, work, nil, program, "man", manuals); err != nil {
		return nil, err
	}
	pages, err := os.ReadDir(manuals)
	if err != nil {
		return nil, err
	}
	var files []file
	read := func(from, to string) error {
		data, err := os.ReadFile(from)
		files = append(files, file{to, 0o644, data})
		return err
	}
	for _, page := range pages {
		if err := read(filepath.Join(manuals, page.Name()), "share/man/man1/"+page.Name()); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		if err := read(filepath.Join(s.dir, name), "share/doc/nixbench/"+name); err != nil {
			return nil, err
		}
	}
	for shell, to := range map[string]string{
		"bash": "share/bash-completion/completions/nixbench",
		"zsh":  "share/zsh/site-functions/_nixbench",
		"fish": "share/fish/vendor_completions.d/nixbench.fish",
	} {
		script, err := command(ctx, work, nil, program, "completion", shell)
		if err != nil {
			return nil, err
		}
		files = append(files, file{to, 0o644, script})
	}
	return files, nil
}
