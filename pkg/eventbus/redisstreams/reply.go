package redisstreams

import (
	"bytes"
	"errors"
	"io"
	"strconv"
)

// reply takes the answer to a read as the server's own bytes, in a buffer that is used
// again for the next one: the client's parser makes a map of boxed strings for each
// message, which costs more than all else that is done with it.
type reply struct {
	bytes.Buffer
}

// keepReply is the largest buffer that is kept for the next answer.
const keepReply = 4 << 20

// maxString is the largest string for which room is made at once.
const maxString = 2 << 20

// serverError is an error that the server answered; the client knows it by its method.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (serverError) RedisError() {}

// Write implements io.Writer. An error answer becomes the error of the command.
func (r *reply) Write(p []byte) (int, error) {
	if r.Len() == 0 && len(p) > 0 && p[0] == '-' {
		return 0, serverError(p[1:])
	}
	return r.Buffer.Write(p)
}

// ReadFrom implements io.ReaderFrom. The client hands over a string of the answer as a
// reader with a limit; bytes.Buffer would ask it a second time for its end.
func (r *reply) ReadFrom(from io.Reader) (int64, error) {
	limited, ok := from.(*io.LimitedReader)
	if !ok || limited.N > maxString {
		return r.Buffer.ReadFrom(from)
	}
	r.Grow(int(limited.N))
	room := r.AvailableBuffer()[:limited.N]
	n, err := io.ReadFull(limited.R, room)
	limited.N -= int64(n)
	r.Buffer.Write(room[:n])
	return int64(n), err
}

func (r *reply) reset() {
	if r.Cap() > keepReply {
		r.Buffer = bytes.Buffer{}
	}
	r.Reset()
}

var errReply = errors.New("the server's answer to a read is not one")

// entries reads *1 *2 $stream *n, and for each entry *2 $id *2f and f names and values;
// *-1 when nothing came.
func (r *reply) entries() ([]entry, error) {
	c := cursor{rest: r.Bytes()}
	streams := c.size('*')
	if streams < 1 || c.bad {
		return nil, c.err()
	}
	if c.size('*') != 2 || c.bulk() == nil || streams != 1 {
		return nil, errReply // one stream was asked for
	}
	n := c.size('*')
	if n < 0 || n > len(c.rest) {
		return nil, errReply
	}
	entries := make([]entry, n)
	for i := range entries {
		e := &entries[i]
		if c.size('*') != 2 {
			return nil, errReply
		}
		e.id, e.count = string(c.bulk()), 1
		for fields := c.size('*'); fields > 1 && !c.bad; fields -= 2 {
			name := c.bulk()
			e.set(name, c.bulk())
		}
	}
	return entries, c.err()
}

// cursor reads the server's protocol.
type cursor struct {
	rest []byte
	bad  bool
}

func (c *cursor) err() error {
	if c.bad {
		return errReply
	}
	return nil
}

// size reads the number of a line of that kind.
func (c *cursor) size(kind byte) int {
	end := bytes.IndexByte(c.rest, '\r')
	if c.bad || end < 2 || len(c.rest) < end+2 || c.rest[0] != kind {
		c.bad = true
		return 0
	}
	n, err := strconv.Atoi(string(c.rest[1:end]))
	c.bad = err != nil
	c.rest = c.rest[end+2:]
	return n
}

// bulk reads a string, which is valid until the buffer is used again.
func (c *cursor) bulk() []byte {
	n := c.size('$')
	if c.bad || n < 0 || len(c.rest) < n+2 {
		c.bad = true
		return nil
	}
	s := c.rest[:n:n]
	c.rest = c.rest[n+2:]
	return s
}
