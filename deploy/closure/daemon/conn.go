package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

const (
	clientMagic = 0x6e697863
	daemonMagic = 0x6478696f

	oldestVersion = 1<<8 | 32
	clientVersion = 1<<8 | 35
)

// Conn is a connection to a Nix daemon. Its methods must not be called concurrently, except WritePath
// and ReadReply: one goroutine may write while another one reads.
type Conn struct {
	// Log receives the log messages that the daemon sends; it may be nil.
	Log func(Message)

	conn    io.ReadWriteCloser
	in      decoder
	out     encoder
	version uint64
}

// UnsupportedError means that the other side is not a Nix daemon, or speaks another version of the protocol.
type UnsupportedError struct{ Reason string }

func (e *UnsupportedError) Error() string { return "the Nix daemon's protocol: " + e.Reason }

// Open performs the handshake with a daemon. The Conn owns conn; if Open fails, it closes conn. After the daemon has
// sent results of limit bytes, all operations fail; log messages do not count.
func Open(conn io.ReadWriteCloser, limit int64) (*Conn, error) {
	const buffer = 128 << 10
	c := &Conn{conn: conn, in: decoder{Reader: bufio.NewReaderSize(conn, 64<<10), left: limit}, out: encoder{Writer: bufio.NewWriterSize(conn, buffer)}}
	if err := c.shakeHands(); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *Conn) shakeHands() error {
	c.out.putInt(clientMagic)
	if err := c.out.flush(); err != nil {
		return err
	}
	magic, version := c.in.getInt(), c.in.getInt()
	switch {
	case c.in.err != nil:
		return c.in.err
	case magic != daemonMagic:
		return &UnsupportedError{fmt.Sprintf("the other side is not a Nix daemon (it has sent %#x)", magic)}
	case version>>8 != clientVersion>>8 || version < oldestVersion:
		return &UnsupportedError{fmt.Sprintf("version %d.%d is not supported", version>>8, version&0xff)}
	}
	c.version = min(version, clientVersion)
	c.out.putInt(clientVersion)
	c.out.putInt(0) // no CPU affinity
	c.out.putInt(0) // no space to reserve
	if err := c.out.flush(); err != nil {
		return err
	}
	if c.version >= 1<<8|33 {
		c.in.getString() // version of Nix
	}
	if c.version >= 1<<8|35 {
		c.in.getInt() // whether the daemon trusts the client
	}
	return c.readLog()
}

// Close closes the connection. Pending reads and writes fail.
func (c *Conn) Close() error { return c.conn.Close() }

// Error is an error message of the daemon. The connection is usable afterwards.
type Error struct {
	Message string
	Traces  []string
}

func (e *Error) Error() string { return e.Message }

// Message is a log message of the daemon: a line, or the start or end of a copy of a path by the daemon itself.
type Message struct {
	Text string // a line, if Path is empty
	Path string // store path that the daemon fetches from a cache
	Done bool   // the transfer of Path has ended
}

const (
	logNext          = 0x6f6c6d67
	logRead          = 0x64617461
	logWrite         = 0x64617416
	logLast          = 0x616c7473
	logError         = 0x63787470
	logStartActivity = 0x53545254
	logStopActivity  = 0x53544f50
	logResult        = 0x52534c54

	activityCopyPath = 100
	maxFetched       = 10_000 // copies that a daemon makes at the same time
)

// readLog reads log messages until the operation has succeeded, or failed with an [*Error].
func (c *Conn) readLog() error {
	left := c.in.left
	defer func() { c.in.left = left }()
	fetched := map[uint64]string{} // activity → path
	for c.in.err == nil {
		c.in.left = maxString
		switch kind := c.in.getInt(); {
		case c.in.err != nil:
		case kind == logLast:
			return nil
		case kind == logError:
			return c.readError()
		case kind == logNext:
			c.log(Message{Text: c.in.getString()})
		case kind == logWrite:
			c.in.getString()
		case kind == logStartActivity:
			id, _, what := c.in.getInt(), c.in.getInt(), c.in.getInt()
			c.in.getString()
			fields := c.readFields()
			c.in.getInt() // parent
			if what == activityCopyPath && len(fields) > 0 {
				if fetched[id] = fields[0]; len(fetched) > maxFetched {
					c.in.fail(errors.New("the Nix daemon has sent too much"))
				}
				c.log(Message{Path: fields[0]})
			}
		case kind == logStopActivity:
			id := c.in.getInt()
			if path := fetched[id]; path != "" {
				delete(fetched, id)
				c.log(Message{Path: path, Done: true})
			}
		case kind == logResult:
			c.in.getInt()
			c.in.getInt()
			c.readFields()
		case kind == logRead:
			c.in.fail(errors.New("the Nix daemon asks for data that no operation has"))
		default:
			c.in.fail(fmt.Errorf("the Nix daemon has sent an unknown message (%#x)", kind))
		}
	}
	return c.in.err
}

func (c *Conn) log(m Message) {
	if c.Log != nil && c.in.err == nil {
		c.Log(m)
	}
}

// readFields reads the fields of an activity. It returns integers as "".
func (c *Conn) readFields() []string {
	var list []string
	for range c.in.getInt() {
		field := ""
		if isString := c.in.getBool(); isString {
			field = c.in.getString()
		} else {
			c.in.getInt()
			c.in.take(0)
		}
		if c.in.err != nil {
			return nil
		}
		list = append(list, field)
	}
	return list
}

func (c *Conn) readError() error {
	e := &Error{}
	c.in.getString() // always "Error"
	c.in.getInt()    // level
	c.in.getString() // name
	e.Message = c.in.getString()
	c.in.getInt() // no position
	for range c.in.getInt() {
		c.in.getInt() // no position
		trace := c.in.getString()
		if c.in.err != nil {
			return c.in.err
		}
		e.Traces = append(e.Traces, trace)
	}
	if c.in.err != nil {
		return c.in.err
	}
	return e
}
