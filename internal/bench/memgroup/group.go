package memgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// files are the names of the files and fields of a memory cgroup.
type files struct {
	limit     string
	swapLimit string // limit of memory and swap together (version 1) or of swap (version 2); may be missing
	stat      string // field of memory.stat: memory of processes, without the page cache
	kills     string // file with the field oom_kill
}

var (
	filesV1 = files{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "total_rss", "memory.oom_control"}
	filesV2 = files{"memory.max", "memory.swap.max", "anon", "memory.events"}
)

// Group is a cgroup with a memory limit.
type Group struct {
	Dir     string // folder of the cgroup
	Unified bool   // cgroup v2
}

func (g Group) files() files {
	if g.Unified {
		return filesV2
	}
	return filesV1
}

// Create creates a cgroup whose processes cannot use more than limit bytes together. It is below the cgroup of this
// process, or beside it with cgroup v2, where a cgroup with processes cannot have others below it. So the limits that
// hold for this process hold in the group, too.
func Create(name string, limit int64) (Group, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Group{}, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Group{}, err
	}
	g, err := place(string(own), string(mounts), name)
	if err != nil {
		return Group{}, err
	}
	if err := os.Mkdir(g.Dir, 0o755); err != nil {
		return Group{}, fmt.Errorf("create a cgroup with a memory limit: %w; run this as root", err)
	}
	if err := g.setLimit(limit); err != nil {
		return Group{}, errors.Join(fmt.Errorf("limit the memory of %s: %w", g.Dir, err), os.Remove(g.Dir))
	}
	return g, nil
}

// place returns the group with the given name for the content of /proc/self/cgroup and /proc/self/mountinfo.
func place(own, mounts, name string) (Group, error) {
	unified := Group{}
	for line := range strings.Lines(own) {
		// The line is ID:CONTROLLERS:PATH; version 2 has id 0 and no controllers.
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch {
		case strings.Contains(","+fields[1]+",", ",memory,"):
			if mount := findMount(mounts, "cgroup", "memory"); mount != "" {
				return Group{Dir: filepath.Join(mount, fields[2], name)}, nil
			}
		case fields[0] == "0" && fields[1] == "":
			if mount := findMount(mounts, "cgroup2", ""); mount != "" {
				unified = Group{Dir: filepath.Join(mount, filepath.Dir(fields[2]), name), Unified: true}
			}
		}
	}
	if unified.Dir == "" {
		return Group{}, errors.New("no cgroup hierarchy with the memory controller is mounted")
	}
	return unified, nil
}

// findMount returns where a file system of the given kind and option is mounted, or an empty text. The mount must show
// the whole hierarchy.
func findMount(mounts, kind, option string) string {
	for line := range strings.Lines(mounts) {
		// The line is `ID PARENT DEVICE ROOT MOUNT OPTIONS [TAGS] - TYPE SOURCE SUPEROPTIONS`.
		before, after, ok := strings.Cut(line, " - ")
		mount, system := strings.Fields(before), strings.Fields(after)
		if !ok || len(mount) < 5 || len(system) < 3 || mount[3] != "/" || system[0] != kind {
			continue
		}
		if option == "" || strings.Contains(","+system[2]+",", ","+option+",") {
			return mount[4]
		}
	}
	return ""
}

func (g Group) setLimit(limit int64) error {
	text := strconv.FormatInt(limit, 10)
	err := g.write(g.files().limit, text)
	if g.Unified && errors.Is(err, os.ErrNotExist) {
		// The parent does not give the memory controller to its children.
		if err := os.WriteFile(filepath.Join(filepath.Dir(g.Dir), "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
			return err
		}
		err = g.write(g.files().limit, text)
	}
	if err != nil {
		return err
	}
	if g.Unified {
		text = "0"
	}
	// Kernels without swap do not have this file.
	if err := g.write(g.files().swapLimit, text); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
		return err
	}
	return nil
}

// write writes a file of the cgroup, which must exist.
func (g Group) write(name, text string) error {
	f, err := os.OpenFile(filepath.Join(g.Dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Enter moves this process into the group. The children that it starts from then on are in the group, too.
func (g Group) Enter() error {
	return g.write("cgroup.procs", strconv.Itoa(os.Getpid()))
}

// Used returns the memory of all processes in the group together, without the page cache, in bytes.
func (g Group) Used() (int64, error) { return g.readField("memory.stat", g.files().stat) }

// Kills returns how many processes of the group the kernel has killed because of the limit.
func (g Group) Kills() (int64, error) { return g.readField(g.files().kills, "oom_kill") }

func (g Group) readField(file, field string) (int64, error) {
	data, err := os.ReadFile(filepath.Join(g.Dir, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, field+" "); ok {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s/%s has no field %s", g.Dir, file, field)
}

// sampleInterval is the time between two samples of Peak. An evaluation that grows at 1 GB per second adds 20 MB meanwhile.
const sampleInterval = 20 * time.Millisecond

// Peak reads Used repeatedly until ctx is done. It returns the largest value.
func (g Group) Peak(ctx context.Context) (int64, error) {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	var peak int64
	for {
		used, err := g.Used()
		if err != nil {
			return 0, err
		}
		peak = max(peak, used)
		select {
		case <-ctx.Done():
			return peak, nil
		case <-tick.C:
		}
	}
}

// removeLimit is how long Remove waits for the last process.
const removeLimit = 10 * time.Second

// Remove removes the cgroup if it exists. Its processes must have ended; the kernel may need a moment to notice.
func (g Group) Remove() error {
	for deadline := time.Now().Add(removeLimit); ; time.Sleep(20 * time.Millisecond) {
		err := os.Remove(g.Dir)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}
