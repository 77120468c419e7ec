package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Hypervisor starts a lab without machines and without a network. The test creates
// machines in the lab from role images: see [Lab.URI], [Lab.PoolPath] and [Image].
// All machines end with the lab.
func Hypervisor(tb testing.TB, opts ...Option) *Lab {
	tb.Helper()
	return Start(tb, 0, append([]Option{WithHypervisor()}, opts...)...)
}

// URI returns the URI of the lab's libvirt: for virtual machines ("qemu") or for
// containers ("lxc"). The URI works in every network namespace.
func (l *Lab) URI(driver string) string {
	uri := l.URIs[driver]
	if uri == "" {
		panic("the lab's libvirt has no driver " + driver)
	}
	return uri
}

// PoolPath returns the path of a folder for the machines' disks. The folder is empty when the lab starts, and has
// the same path for libvirt and for the test.
func (l *Lab) PoolPath() string {
	if l.state.PoolPath == "" {
		panic("the lab has no pool: it was started without WithHypervisor")
	}
	return l.state.PoolPath
}

// Image returns the folder of the image of a role, from which a hypervisor makes machines. The
// kind is "container" or "vm". The image is built unless it is cached. Further arguments
// are options of the command `lab image`: "--size", "4G", or "--kubernetes".
func Image(tb testing.TB, kind string, args ...string) string {
	tb.Helper()
	needE2E(tb)
	image, err := BuildImage(kind, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return image
}

// Tree returns the folder with the root file system of the machines that these flags describe, such as
// "--nixos". The file system is built unless it is cached.
func Tree(tb testing.TB, flags ...string) string {
	tb.Helper()
	needE2E(tb)
	tree, err := runImage(flags...)
	if err != nil {
		tb.Fatal(err)
	}
	return tree
}

// BuildImage is like [Image], but for callers that are not a test. It returns an error.
func BuildImage(kind string, args ...string) (string, error) {
	return runImage(append([]string{kind}, args...)...)
}

// runImage runs `lab image`, and returns the folder that it prints.
func runImage(args ...string) (string, error) {
	script, err := findScript()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, script, append([]string{"image"}, args...)...)
	cmd.Env = append(os.Environ(), "NIXBENCH_LAB=")
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("lab image %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
