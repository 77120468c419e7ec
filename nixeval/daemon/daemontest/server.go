// Package daemontest is a Nix daemon for tests. It is the server for the client in package daemon. Its store is a list
// of paths in memory.
package daemontest

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/nixeval/daemon"
)

// Store is a store in memory. Its fields also determine how the daemon of the store behaves. Set the fields before the first connection.
type Store struct {
	Infos   []daemon.PathInfo // the records that QueryPathInfo returns
	Version uint64            // of the protocol; 0: 1.35
	Untrust bool              // the daemon does not trust the client: it refuses paths without signatures

	AllValid bool // all paths are valid

	Substitutes []string // paths that the daemon can fetch
	// Adding is called for each path that a client adds, before its NAR is read. An error is sent to the client;
	// io.EOF ends the connection.
	Adding func(path string) error

	mu    sync.Mutex // held while an operation changes or reads the fields below
	valid map[string]bool
	nars  map[string][]byte
	asked map[uint64]int
	added []string
	roots []string
}

// SetValid makes paths valid. It reports whether one of the paths was not valid before.
func (s *Store) SetValid(paths ...string) (changed bool) {
	defer s.lock()()
	for _, p := range paths {
		changed = changed || !s.valid[p]
		s.valid[p] = true
	}
	return changed
}

// Added returns the paths that clients have added, in order.
func (s *Store) Added() []string { return read(s, func() []string { return slices.Clone(s.added) }) }

// Roots returns the temporary and indirect roots that clients have added, in order.
func (s *Store) Roots() []string { return read(s, func() []string { return slices.Clone(s.roots) }) }

// NAR returns the NAR of an added path.
func (s *Store) NAR(path string) []byte { return read(s, func() []byte { return s.nars[path] }) }

// Asked returns how often an operation was requested.
func (s *Store) Asked(op uint64) int { return read(s, func() int { return s.asked[op] }) }

func read[T any](s *Store, get func() T) T {
	defer s.lock()()
	return get()
}

// lock locks the store, and returns the function that unlocks it.
func (s *Store) lock() (unlock func()) {
	s.mu.Lock()
	if s.valid == nil {
		s.valid, s.nars, s.asked = map[string]bool{}, map[string][]byte{}, map[uint64]int{}
	}
	return s.mu.Unlock
}

// session serves one connection. After the first error, it reads only zero values, and ends.
type session struct {
	*Store
	daemon.Decoder
	out *bufio.Writer
}

// ServeStdio serves a client that has started the daemon as a program.
func (s *Store) ServeStdio(stdin io.Reader, stdout io.Writer) {
	s.Serve(struct {
		io.Reader
		io.Writer
		io.Closer
	}{stdin, stdout, io.NopCloser(nil)})
}

// Serve serves one connection until it ends.
func (s *Store) Serve(conn io.ReadWriteCloser) {
	defer conn.Close()
	c := &session{s, daemon.Decoder{Reader: bufio.NewReader(conn), Left: math.MaxInt64}, bufio.NewWriter(conn)}
	c.GetInt()
	version := cmp.Or(s.Version, 1<<8|35)
	c.put(uint64(0x6478696f), version)
	_ = c.out.Flush()
	version = min(version, c.GetInt())
	c.GetInt()
	c.GetInt()
	if version >= 1<<8|33 {
		c.put("daemontest")
	}
	if version >= 1<<8|35 {
		c.put(uint64(1))
	}
	c.done()
	for c.out.Flush() == nil && c.Err == nil {
		if op := c.GetInt(); c.Err == nil {
			c.answer(op)
		}
	}
}

func (c *session) answer(op uint64) {
	unlock := c.lock()
	c.asked[op]++
	unlock()
	switch op {
	case 11, 12:
		path := c.GetString()
		unlock := c.lock()
		c.roots = append(c.roots, path)
		unlock()
		c.done()
		c.put(uint64(1))
	case 26:
		c.queryPathInfo(c.GetString())
	case 31:
		paths, substitute := c.GetStrings(), c.GetInt() != 0
		if substitute {
			c.substitute(paths)
		}
		c.done()
		defer c.lock()()
		c.put(slices.DeleteFunc(paths, func(p string) bool { return !c.valid[p] && !c.AllValid }))
	case 39:
		c.addToStore()
	default:
		c.fail("daemontest does not know this operation")
	}
}

func (c *session) queryPathInfo(path string) {
	c.done()
	i := slices.IndexFunc(c.Infos, func(info daemon.PathInfo) bool { return info.Path == path })
	if i < 0 {
		c.put(uint64(0))
		return
	}
	info := c.Infos[i]
	c.put(uint64(1), info.Deriver, info.NarHash, info.References, info.RegistrationTime, info.NarSize, uint64(1), info.Signatures, info.CA)
}

func (c *session) substitute(paths []string) {
	for i, p := range paths {
		if slices.Contains(c.Substitutes, p) {
			c.put(uint64(0x53545254), uint64(i), uint64(3), uint64(100), "copying path '"+p+"' from 'cache'", uint64(3), uint64(1), p, uint64(1), "cache", uint64(1), "local", uint64(0))
			c.put(uint64(0x53544f50), uint64(i))
			c.SetValid(p)
		}
	}
}

func (c *session) addToStore() {
	path := c.GetString()
	c.GetString()
	c.GetString()
	refs := c.GetStrings()
	c.GetInt()
	size := c.GetInt()
	c.GetInt()
	signatures := c.GetStrings()
	c.GetString()
	c.GetInt()
	c.GetInt()
	var err error
	if c.Adding != nil {
		err = c.Adding(path)
	}
	var nar []byte
	for n := c.GetInt(); n > 0; n = c.GetInt() {
		chunk := make([]byte, n)
		if _, err := io.ReadFull(c.Reader, chunk); err != nil {
			c.Err = err
		}
		nar = append(nar, chunk...)
	}
	defer c.lock()()
	switch {
	case errors.Is(err, io.EOF) || c.Err != nil:
		c.Err = io.EOF
	case err != nil:
		c.fail(err.Error())
	case c.Untrust && len(signatures) == 0:
		c.fail("cannot add path '" + path + "' because it lacks a signature by a trusted key")
	case uint64(len(nar)) != size:
		c.fail("size mismatch")
	case slices.ContainsFunc(refs, func(r string) bool { return r != path && !c.valid[r] }):
		c.fail("a reference of " + path + " is not valid")
	default:
		c.valid[path], c.nars[path], c.added = true, nar, append(c.added, path)
		c.done()
	}
	_ = c.out.Flush()
}

func (c *session) done() {
	c.put(uint64(0x6f6c6d67), "\x1b[31;1mwarning:\x1b[0m ignoring the client-specified setting 'x'", uint64(0x616c7473))
}

func (c *session) fail(text string) {
	c.put(uint64(0x63787470), "Error", uint64(0), "Error", text, uint64(0), uint64(0))
}

func (c *session) put(values ...any) { daemon.Put(c.out, values...) }
