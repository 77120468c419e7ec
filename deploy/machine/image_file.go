package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// readImage finds the image that a role boots from: a disk image, or a folder with a disk image and, for direct kernel boot, kernel, initrd
// and cmdline.
func readImage(role, path string) (provider.Image, error) {
	var i provider.Image
	info, err := os.Stat(path)
	if err == nil {
		if i.Disk = path; info.IsDir() {
			i, err = readImageFolder(path)
		}
	}
	if err == nil {
		i.Disk, err = filepath.EvalSymlinks(i.Disk)
	}
	if err == nil {
		i.Format, i.Size, err = provider.ReadImageFile(i.Disk)
	}
	if err == nil {
		i.Hash, err = identifyImage(i)
	}
	if err != nil {
		return i, newImageError(role, path, err)
	}
	return i, nil
}

// identifyImage returns a hash that stands for the content of an image: the hash of the command line, and of the paths, sizes and
// modification times of the files. The content of the files is not read, because a disk may have many gigabytes. In the Nix store, where
// all files have the same time, the path determines the content.
func identifyImage(i provider.Image) (string, error) {
	sum := sha256.New()
	for _, file := range []string{i.Disk, i.Kernel, i.Initrd} {
		if file == "" {
			continue
		}
		file, err := filepath.EvalSymlinks(file)
		if err != nil {
			return "", err
		}
		info, err := os.Stat(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%q %d %d\n", file, info.Size(), info.ModTime().UnixNano())
	}
	fmt.Fprintf(sum, "%q", i.Cmdline)
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// cmdlineSize is the maximum size of a cmdline file in bytes. Linux accepts a command line of at most 4 KiB.
const cmdlineSize = 64 << 10

func readImageFolder(dir string) (provider.Image, error) {
	var i provider.Image
	disks, err := findDiskImages(dir)
	if err != nil {
		return i, err
	}
	if len(disks) != 1 {
		return i, fmt.Errorf("it must have one disk image (*.qcow2, *.raw or *.img), not %d", len(disks))
	}
	i.Disk = disks[0]
	for name, into := range map[string]*string{"kernel": &i.Kernel, "initrd": &i.Initrd} {
		if file := filepath.Join(dir, name); durable.Exists(file) {
			*into = file
		}
	}
	if i.Initrd != "" && i.Kernel == "" {
		return i, errors.New("there is an initrd in it, but no kernel")
	}
	text, err := durable.Read(filepath.Join(dir, "cmdline"), cmdlineSize)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return i, err
	}
	i.Cmdline = strings.TrimSpace(string(text))
	return i, nil
}

// findDiskImages returns the disk images in a folder. If the folder has no disk images, it returns the disk images in
// its direct subfolders, where some Nix image builders put images.
func findDiskImages(dir string) ([]string, error) {
	for _, pattern := range []string{"*", "*/*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		files = slices.DeleteFunc(files, func(file string) bool {
			return !slices.Contains([]string{".qcow2", ".raw", ".img"}, filepath.Ext(file))
		})
		if len(files) > 0 {
			return files, nil
		}
	}
	return nil, nil
}

func newImageError(role, path string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) && p.Path == path {
		err = p.Err
	}
	return failure.WithHint(failure.WithKind(failure.Provision, fmt.Errorf("role %s: image %s: %w", role, path, err)),
		fmt.Sprintf("roles.%s.image takes a disk image (qcow2 or raw; for containers a raw file system), or a folder with disk.qcow2 or disk.raw, and kernel, initrd and cmdline if it is to be booted directly", role))
}
