package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const (
	opAddTempRoot     uint64 = 11
	opAddIndirectRoot uint64 = 12
	opQueryPathInfo   uint64 = 26
	opQueryValidPaths uint64 = 31
	opAddToStoreNar   uint64 = 39
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

// QueryValidPaths returns those of the paths that are in the store. If substitute is set, the daemon first fetches
// missing paths from its caches where possible.
func (c *Conn) QueryValidPaths(paths []string, substitute bool) ([]string, error) {
	if err := c.request(opQueryValidPaths, paths, substitute); err != nil {
		return nil, err
	}
	valid := c.in.GetStrings()
	return valid, c.in.Err
}

// AddTempRoot protects a path from the garbage collector until the connection ends. The path need not be in the store.
func (c *Conn) AddTempRoot(path string) error { return c.addRoot(opAddTempRoot, path) }

// AddIndirectRoot protects a store path from the garbage collector by a symbolic link. The link is outside the store
// and refers to the path. The path is protected as long as the link exists.
func (c *Conn) AddIndirectRoot(link string) error { return c.addRoot(opAddIndirectRoot, link) }

func (c *Conn) addRoot(operation uint64, path string) error {
	if err := c.request(operation, path); err != nil {
		return err
	}
	c.in.GetInt() // always 1
	return c.in.Err
}

// maxQueries is the maximum number of queries that are sent before their replies are read. If the user is not root,
// `nix-daemon --stdio` copies both directions in one thread, which would block forever if both directions were full.
// 256 queries have about 25 KiB, so they fit into a socket's buffer.
const maxQueries = 256

// QueryPathInfos returns the records of those paths that are in the store.
func (c *Conn) QueryPathInfos(paths []string) (infos []*PathInfo, err error) {
	for batch := range slices.Chunk(paths, maxQueries) {
		sent := make(chan error, 1)
		go func() {
			for _, p := range batch {
				Put(c.out, opQueryPathInfo, p)
			}
			sent <- c.out.Flush()
		}()
		for _, p := range batch {
			info, readErr := c.readPathInfo(p)
			if info != nil {
				infos = append(infos, info)
			}
			if err = readErr; err != nil {
				c.Close() // ends the sender
				break
			}
		}
		if sendErr := <-sent; err != nil || sendErr != nil {
			return nil, cmp.Or(err, sendErr)
		}
	}
	return infos, nil
}

// readPathInfo reads the reply to a query about a path. It returns nil without an error if the path is not in the store.
func (c *Conn) readPathInfo(path string) (*PathInfo, error) {
	if err := c.readLog(); err != nil {
		return nil, err
	}
	d := &c.in
	if valid := d.GetInt() != 0; !valid {
		return nil, d.Err
	}
	info := &PathInfo{Path: path, Deriver: d.GetString(), NarHash: d.GetString(), References: d.GetStrings(), RegistrationTime: d.GetInt(), NarSize: d.GetInt()}
	d.GetInt() // whether the path was built there
	info.Signatures, info.CA = d.GetStrings(), d.GetString()
	for _, p := range info.References { // the plan shows their names
		if strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("the Nix daemon has sent the store path %q", p)
		}
	}
	return info, d.Err
}
