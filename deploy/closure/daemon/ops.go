package daemon

import (
	"fmt"
	"slices"
	"strings"
)

const (
	opAddTempRoot     = 11
	opAddIndirectRoot = 12
	opSetOptions      = 19
	opQueryPathInfo   = 26
	opQueryValidPaths = 31
	opAddToStoreNar   = 39

	verbosityInfo = 3
)

// PathInfo is what a store records about a path.
type PathInfo struct {
	Path             string
	Deriver          string // "" if unknown
	NarHash          string // SHA-256 in hexadecimal digits
	References       []string
	RegistrationTime uint64
	NarSize          uint64
	Signatures       []string
	CA               string // the content address, or ""
}

// SetOptions passes settings to the daemon. The daemon ignores most of them if it does not trust the user.
func (c *Conn) SetOptions(settings [][2]string) error {
	o := &c.out
	o.putInt(opSetOptions)
	o.putBool(false) // keep failed builds
	o.putBool(false) // keep going
	o.putBool(false) // build what cannot be fetched
	o.putInt(verbosityInfo)
	o.putInt(1)     // parallel builds
	o.putInt(0)     // no limit for silent builds
	o.putBool(true) // obsolete
	o.putInt(0)     // verbosity of builds
	o.putInt(0)     // obsolete
	o.putInt(0)     // obsolete
	o.putInt(0)     // cores of a build: all
	o.putBool(true) // fetch from caches
	o.putInt(uint64(len(settings)))
	for _, s := range settings {
		o.putString(s[0])
		o.putString(s[1])
	}
	if err := o.flush(); err != nil {
		return err
	}
	return c.readLog()
}

// QueryValidPaths returns those of the paths that are in the store. With substitute, the daemon first fetches
// from its caches what it can.
func (c *Conn) QueryValidPaths(paths []string, substitute bool) ([]string, error) {
	c.out.putInt(opQueryValidPaths)
	c.out.putStrings(paths)
	c.out.putBool(substitute)
	if err := c.out.flush(); err != nil {
		return nil, err
	}
	if err := c.readLog(); err != nil {
		return nil, err
	}
	valid := c.in.getStrings()
	return valid, c.in.err
}

// AddTempRoot protects a path from the garbage collector until the connection ends. The path need not be in the store.
func (c *Conn) AddTempRoot(path string) error { return c.addRoot(opAddTempRoot, path) }

// AddIndirectRoot makes a symbolic link, which is outside the store and refers to a path in it, a root of the garbage
// collector, as long as the link exists.
func (c *Conn) AddIndirectRoot(link string) error { return c.addRoot(opAddIndirectRoot, link) }

func (c *Conn) addRoot(operation uint64, path string) error {
	c.out.putInt(operation)
	c.out.putString(path)
	if err := c.out.flush(); err != nil {
		return err
	}
	if err := c.readLog(); err != nil {
		return err
	}
	c.in.getInt() // always 1
	return c.in.err
}

// maxQueries is the maximal number of queries without a reply. The nix-daemon --stdio of a user other than root copies
// between its pipes and the daemon's socket in one thread. If the queries do not fit into the socket's buffer while the
// daemon waits to send replies, neither side can continue. 256 queries have about 25 KiB.
const maxQueries = 256

// QueryPathInfos returns the records of the paths, in the same order; nil for a path that is not in the store.
func (c *Conn) QueryPathInfos(paths []string) ([]*PathInfo, error) {
	infos := make([]*PathInfo, 0, len(paths))
	for batch := range slices.Chunk(paths, maxQueries) {
		found, err := c.queryBatch(batch)
		if err != nil {
			return nil, err
		}
		infos = append(infos, found...)
	}
	return infos, nil
}

// queryBatch sends all queries without waiting for replies, and reads the replies meanwhile.
func (c *Conn) queryBatch(paths []string) ([]*PathInfo, error) {
	sent := make(chan error, 1)
	go func() {
		for _, p := range paths {
			c.out.putInt(opQueryPathInfo)
			c.out.putString(p)
		}
		sent <- c.out.flush()
	}()
	infos := make([]*PathInfo, len(paths))
	var err error
	for i, p := range paths {
		if infos[i], err = c.readPathInfo(p); err != nil {
			c.Close() // the replies to the other queries cannot be read
			break
		}
	}
	if sendErr := <-sent; err == nil {
		err = sendErr
	}
	return infos, err
}

func (c *Conn) readPathInfo(path string) (*PathInfo, error) {
	if err := c.readLog(); err != nil {
		return nil, err
	}
	if valid := c.in.getBool(); !valid {
		return nil, c.in.err
	}
	d := &c.in
	info := &PathInfo{Path: path, Deriver: d.getString(), NarHash: d.getString(), References: d.getStrings(), RegistrationTime: d.getInt(), NarSize: d.getInt()}
	d.getBool() // whether the path was built there
	info.Signatures, info.CA = d.getStrings(), d.getString()
	for _, p := range info.References { // the plan shows their names
		if strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' || r > '~' }) {
			d.fail(fmt.Errorf("the Nix daemon has sent the store path %q", p))
		}
	}
	return info, d.err
}

// WritePath asks the daemon to add a path, and writes the path's NAR: nar calls write with the parts of the NAR. The references of the path must have been
// added before. A daemon that trusts the user requires no signature. WritePath does not wait for the reply, and keeps
// a part of the data until Flush is called.
//
// If nar fails, the connection cannot be used any more.
func (c *Conn) WritePath(info *PathInfo, nar func(write func([]byte) error) error) error {
	o := &c.out
	o.putInt(opAddToStoreNar)
	o.putString(info.Path)
	o.putString(info.Deriver)
	o.putString(info.NarHash)
	o.putStrings(info.References)
	o.putInt(info.RegistrationTime)
	o.putInt(info.NarSize)
	o.putBool(false) // it was not built there
	o.putStrings(info.Signatures)
	o.putString(info.CA)
	o.putBool(false) // no repair
	o.putBool(true)  // no check of signatures
	if o.err != nil {
		return o.err
	}
	if err := nar(c.writeFrame); err != nil {
		return err
	}
	o.putInt(0) // no further frame
	return o.err
}

// writeFrame writes a part of a NAR.
func (c *Conn) writeFrame(b []byte) error {
	if len(b) > 0 {
		c.out.putInt(uint64(len(b)))
		c.out.putBytes(b)
	}
	return c.out.err
}

// Flush sends the data that WritePath has kept.
func (c *Conn) Flush() error { return c.out.flush() }

// ReadReply waits for the reply to the first WritePath whose reply has not been read yet. It returns an
// [*Error] if the daemon could not add the path.
func (c *Conn) ReadReply() error { return c.readLog() }
