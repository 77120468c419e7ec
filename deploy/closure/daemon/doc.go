// Package daemon is a client of the Nix daemon's protocol (in Nix's manual: the worker protocol). It has the
// operations that a copy needs: which paths are valid, what a path is made of, and adding paths.
//
//	c, err := daemon.Open(conn, 64<<20)           // handshake
//	valid, err := c.QueryValidPaths(paths, false)
//	infos, err := c.QueryPathInfos(paths)
//	err = c.WritePath(info, nar)                  // as often as needed, without waiting for replies
//	err = c.ReadReply()                           // one for each WritePath, in another goroutine
//
// The protocol has a version, which daemon and client negotiate. The client requires 1.32 (Nix 2.4) and speaks at
// most 1.35 (Nix 2.15); every later version of Nix still speaks these. With another daemon, Open returns an
// [UnsupportedError].
//
// All integers are 64 bits, little-endian. A string is its length, its bytes, and zeros up to a multiple of eight
// bytes. Before the result of an operation, the daemon sends log messages, and then a marker that the operation has
// succeeded, or an error.
package daemon
