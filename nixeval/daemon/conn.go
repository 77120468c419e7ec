package daemon

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
)

const (
	clientMagic   uint64 = 0x6e697863
	daemonMagic   uint64 = 0x6478696f
	oldestVersion uint64 = 1<<8 | 32
	clientVersion uint64 = 1<<8 | 35
)

// Conn is a connection to a Nix daemon. Its methods must not be called concurrently.
type Conn struct {
	io.Closer                              // pending reads and writes fail
	Fetch     func(path string, done bool) // called when the daemon starts to fetch a path from a cache, and when it has ended
	in        Decoder
	out       *bufio.Writer
}

// Open performs the handshake with a daemon. The Conn owns conn; if Open fails, it closes conn. After the daemon has
// sent results of limit bytes in total, all operations fail. Log messages do not count.
func Open(conn io.ReadWriteCloser, limit int64) (*Conn, error) {
	c := &Conn{Fetch: func(string, bool) {}, Closer: conn, in: Decoder{Reader: bufio.NewReaderSize(conn, 8<<10), Left: limit}, out: bufio.NewWriterSize(conn, 8<<10)}
	if err := c.shakeHands(); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// shakeHands performs the handshake: both sides send a magic number and their version of the protocol. The lower version is used.
func (c *Conn) shakeHands() error {
	Put(c.out, clientMagic)
	if err := c.out.Flush(); err != nil {
		return err
	}
	magic, version := c.in.GetInt(), c.in.GetInt()
	switch {
	case c.in.Err != nil:
		return c.in.Err
	case magic != daemonMagic:
		return fmt.Errorf("the other side is not a Nix daemon (it has sent %#x)", magic)
	case version>>8 != clientVersion>>8 || version < oldestVersion:
		return fmt.Errorf("version %d.%d of the Nix daemon's protocol is not supported", version>>8, version&0xff)
	}
	Put(c.out, clientVersion, false, false) // no CPU affinity, no space to reserve
	if err := c.out.Flush(); err != nil {
		return err
	}
	version = min(version, clientVersion)
	if version >= 1<<8|33 {
		c.in.GetString() // version of Nix
	}
	if version >= 1<<8|35 {
		c.in.GetInt() // whether the daemon trusts the client
	}
	return c.readLog()
}

// request sends an operation to the daemon, and reads the log messages that the daemon sends before the result.
func (c *Conn) request(operation uint64, arguments ...any) error {
	Put(c.out, operation)
	Put(c.out, arguments...)
	if err := c.out.Flush(); err != nil {
		return err
	}
	return c.readLog()
}

// Error is an error message of the daemon. After such an error the connection can still be used.
type Error struct{ Message string }

func (e *Error) Error() string { return e.Message }

const (
	logNext          = 0x6f6c6d67
	logLast          = 0x616c7473
	logError         = 0x63787470
	logStartActivity = 0x53545254
	logStopActivity  = 0x53544f50
	logResult        = 0x52534c54

	activityCopyPath = 100
	maxFetched       = 10_000 // maximum number of paths that a daemon fetches at the same time
)

// readLog reads log messages until the operation has succeeded, or failed with an [*Error].
func (c *Conn) readLog() error {
	left := c.in.Left
	defer func() { c.in.Left = left }()
	fetched := map[uint64]string{} // activity → path
	for c.in.Err == nil {
		c.in.Left = maxString
		switch kind := c.in.GetInt(); {
		case c.in.Err != nil:
		case kind == logLast:
			return nil
		case kind == logError:
			return c.readError()
		case kind == logNext:
			c.in.GetString()
		case kind == logStartActivity:
			id, _, what := c.in.GetInt(), c.in.GetInt(), c.in.GetInt()
			c.in.GetString()
			path := c.readFields()
			c.in.GetInt() // parent
			if what == activityCopyPath && c.in.Err == nil {
				if fetched[id] = path; len(fetched) > maxFetched {
					return errTooMuch
				}
				c.Fetch(path, false)
			}
		case kind == logStopActivity:
			id := c.in.GetInt()
			if path := fetched[id]; path != "" {
				delete(fetched, id)
				c.Fetch(path, true)
			}
		case kind == logResult:
			c.in.GetInt()
			c.in.GetInt()
			c.readFields()
		default:
			return fmt.Errorf("the Nix daemon has sent an unknown message (%#x)", kind)
		}
	}
	return c.in.Err
}

// readFields reads the fields of an activity (a log message about a running action, such as a copy), and returns the first string.
func (c *Conn) readFields() (text string) {
	for n := c.in.GetInt(); n > 0 && c.in.Err == nil; n-- {
		if isString := c.in.GetInt() != 0; isString {
			text = cmp.Or(text, c.in.GetString())
		} else {
			c.in.GetInt()
			c.in.Take(0)
		}
	}
	return text
}

// readError reads an error message of the daemon, and returns it as an [*Error].
func (c *Conn) readError() error {
	c.in.GetString() // always "Error"
	c.in.GetInt()    // level
	c.in.GetString() // name
	e := &Error{c.in.GetString()}
	c.in.GetInt() // no position
	for n := c.in.GetInt(); n > 0 && c.in.Err == nil; n-- {
		c.in.GetInt()    // no position
		c.in.GetString() // a line of the trace
	}
	if c.in.Err != nil {
		return c.in.Err
	}
	return e
}
