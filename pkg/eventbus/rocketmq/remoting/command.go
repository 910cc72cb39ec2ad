package remoting

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
)

const (
	// MaxFrameBytes is what a peer may send in one frame: RocketMQ's own limit.
	MaxFrameBytes = 16 << 20
	// formJSON is the only form of header that we speak; a peer answers in ours.
	formJSON = 0

	flagResponse = 1
	flagOneWay   = 2

	// What the Go client says of itself; brokers answer newer clients in no other way.
	language = "GO"
	version  = 317
)

// ErrFrame is wrapped by every error that says the peer speaks another protocol.
var ErrFrame = errors.New("not a RocketMQ frame")

// Command is one request or response.
type Command struct {
	Code   int
	Opaque int32
	Flag   int
	Remark string
	Fields map[string]string
	Body   []byte
}

// header is the JSON of a Command. Fields is raw on the way in: some brokers
// write numbers where others write strings.
type header struct {
	Code     int    `json:"code"`
	Language string `json:"language"`
	Version  int    `json:"version"`
	Opaque   int32  `json:"opaque"`
	Flag     int    `json:"flag"`
	Remark   string `json:"remark,omitempty"`
	Fields   fields `json:"extFields,omitempty"`
	Form     string `json:"serializeTypeCurrentRPC"`
}

type fields map[string]string

func (f *fields) UnmarshalJSON(text []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	*f = make(fields, len(raw))
	for name, value := range raw {
		var s string
		if err := json.Unmarshal(value, &s); err != nil {
			s = string(value) // a number or a truth value
		}
		(*f)[name] = s
	}
	return nil
}

// Response tells responses from requests.
func (c *Command) Response() bool { return c.Flag&flagResponse != 0 }

// OneWay tells a request that wants no response.
func (c *Command) OneWay() bool { return c.Flag&flagOneWay != 0 }

// Reply is the response to a request.
func (c *Command) Reply(code int, remark string) *Command {
	return &Command{Code: code, Opaque: c.Opaque, Flag: flagResponse, Remark: remark, Fields: map[string]string{}}
}

// Int reads a number from the fields.
func (c *Command) Int(name string) (int64, error) {
	text, ok := c.Fields[name]
	if !ok {
		return 0, fmt.Errorf("%w: the answer has no %s", ErrFrame, name)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %s is no number: %.40q", ErrFrame, name, text)
	}
	return n, nil
}

// WriteCommand writes one frame, in one Write.
func WriteCommand(w io.Writer, c *Command) error {
	head, err := json.Marshal(header{
		Code: c.Code, Language: language, Version: version, Opaque: c.Opaque, Flag: c.Flag,
		Remark: c.Remark, Fields: maps.Clone(c.Fields), Form: "JSON",
	})
	if err != nil {
		return fmt.Errorf("encode a frame: %w", err)
	}
	size := 4 + len(head) + len(c.Body)
	if size > MaxFrameBytes {
		return fmt.Errorf("encode a frame: %d bytes, at most %d are allowed", size, MaxFrameBytes)
	}
	frame := make([]byte, 0, 4+size)
	frame = binary.BigEndian.AppendUint32(frame, uint32(size))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(head))) // formJSON in the top byte
	frame = append(append(frame, head...), c.Body...)
	if _, err := w.Write(frame); err != nil {
		return fmt.Errorf("write a frame: %w", err)
	}
	return nil
}

// ReadCommand reads one frame. It asks for memory as bytes arrive, not as the
// peer's length promises.
func ReadCommand(r *bufio.Reader) (*Command, error) {
	var sizes [8]byte
	if _, err := io.ReadFull(r, sizes[:]); err != nil {
		return nil, fmt.Errorf("read a frame: %w", err)
	}
	size := binary.BigEndian.Uint32(sizes[:4])
	form, headSize := sizes[4], binary.BigEndian.Uint32(sizes[4:])&0xFFFFFF
	switch {
	case size > MaxFrameBytes:
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrFrame, size, MaxFrameBytes)
	case form != formJSON:
		return nil, fmt.Errorf("%w: its header is of form %d, only JSON (0) is spoken here", ErrFrame, form)
	case size < 4 || headSize > size-4:
		return nil, fmt.Errorf("%w: its header has %d bytes, the whole of it %d", ErrFrame, headSize, size)
	}
	rest, err := io.ReadAll(io.LimitReader(r, int64(size-4)))
	if err != nil {
		return nil, fmt.Errorf("read a frame: %w", err)
	}
	if len(rest) < int(size-4) {
		return nil, fmt.Errorf("read a frame: %w", io.ErrUnexpectedEOF)
	}
	var head header
	if err := json.Unmarshal(rest[:headSize], &head); err != nil {
		return nil, fmt.Errorf("%w: its header: %w", ErrFrame, err)
	}
	if head.Fields == nil {
		head.Fields = fields{}
	}
	return &Command{
		Code: head.Code, Opaque: head.Opaque, Flag: head.Flag, Remark: head.Remark,
		Fields: head.Fields, Body: rest[headSize:],
	}, nil
}
