package remoting_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
)

func decode(frame []byte) (*remoting.Command, error) {
	return remoting.ReadCommand(bufio.NewReader(bytes.NewReader(frame)))
}

func encode(t testing.TB, c *remoting.Command) []byte {
	var b bytes.Buffer
	require.NoError(t, remoting.WriteCommand(&b, c))
	return b.Bytes()
}

// frame builds one by hand: sizes as given, whether or not they are true.
func frame(size, head uint32, rest string) []byte {
	b := binary.BigEndian.AppendUint32(nil, size)
	return append(binary.BigEndian.AppendUint32(b, head), rest...)
}

func TestACommandComesOutAsItWentIn(t *testing.T) {
	for _, c := range []*remoting.Command{
		{Code: 105, Opaque: 7, Fields: map[string]string{"topic": `beex "id" é`}, Body: []byte{}},
		{Code: 1, Opaque: -1, Flag: 3, Remark: "no\nway", Fields: map[string]string{}, Body: []byte("\x00\x01body")},
	} {
		got, err := decode(encode(t, c))
		require.NoError(t, err)
		require.Equal(t, c, got)
	}
}

func TestSeveralCommandsInOneStream(t *testing.T) {
	stream := append(encode(t, &remoting.Command{Code: 1, Body: []byte("a")}), encode(t, &remoting.Command{Code: 2})...)
	r := bufio.NewReader(bytes.NewReader(stream))
	for code := 1; code <= 2; code++ {
		c, err := remoting.ReadCommand(r)
		require.NoError(t, err)
		require.Equal(t, code, c.Code)
	}
	_, err := remoting.ReadCommand(r)
	require.ErrorIs(t, err, io.EOF)
}

func TestFieldsThatAreNoStringsAreRead(t *testing.T) {
	head := `{"code":0,"flag":1,"opaque":3,"remark":null,"extFields":{"offset":12,"traced":true,"s":"x"}}`
	c, err := decode(frame(uint32(4+len(head)), uint32(len(head)), head))
	require.NoError(t, err)
	require.True(t, c.Response())
	require.Equal(t, map[string]string{"offset": "12", "traced": "true", "s": "x"}, c.Fields)
	n, err := c.Int("offset")
	require.NoError(t, err)
	require.EqualValues(t, 12, n)
	_, err = c.Int("s")
	require.ErrorIs(t, err, remoting.ErrFrame)
	_, err = c.Int("absent")
	require.ErrorIs(t, err, remoting.ErrFrame)
}

func TestWhatIsNoFrameIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		frame []byte
		want  error
	}{
		"nothing":                  {nil, io.EOF},
		"half a size":              {[]byte{0, 0, 0}, io.ErrUnexpectedEOF},
		"cut short":                {frame(40, 36, `{"code":0`), io.ErrUnexpectedEOF},
		"another protocol":         {[]byte("HTTP/1.1 400 Bad Request\r\n"), remoting.ErrFrame},
		"larger than any":          {frame(remoting.MaxFrameBytes+1, 2, "{}"), remoting.ErrFrame},
		"no room for the header":   {frame(2, 0, "{}"), remoting.ErrFrame},
		"header longer than frame": {frame(6, 3, "{}"), remoting.ErrFrame},
		"the binary header":        {frame(6, 1<<24|2, "{}"), remoting.ErrFrame},
		"a header that is no JSON": {frame(6, 2, "x}"), remoting.ErrFrame},
		"fields that are a list":   {frame(20, 16, `{"extFields":[]}`), remoting.ErrFrame},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode(test.frame)
			require.ErrorIs(t, err, test.want)
		})
	}
	err := remoting.WriteCommand(io.Discard, &remoting.Command{Body: make([]byte, remoting.MaxFrameBytes)})
	require.ErrorContains(t, err, "at most")
}

// A frame that promises much and brings little costs little memory.
func TestAPromisedSizeIsNotAllocated(t *testing.T) {
	promise := frame(remoting.MaxFrameBytes, 2, "{}")
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			_, _ = decode(promise)
		}
	})
	require.Less(t, result.AllocedBytesPerOp(), int64(64<<10))
}

func FuzzReadCommand(f *testing.F) {
	f.Add(encode(f, &remoting.Command{Code: 105, Opaque: 1, Fields: map[string]string{"topic": "t"}}))
	f.Add(encode(f, &remoting.Command{Code: 0, Flag: 1, Remark: "r", Body: []byte("body")}))
	f.Add(frame(6, 2, "{}"))
	f.Add(frame(1<<31, 1<<24, ""))
	f.Add([]byte(strings.Repeat("\xff", 32)))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := decode(text)
		if err != nil {
			return
		}
		again, err := decode(encode(t, c))
		require.NoError(t, err)
		require.Equal(t, c, again)
	})
}

func TestASignatureCoversFieldsInOrderAndBody(t *testing.T) {
	account := remoting.Account{AccessKey: "key", SecretKey: "secret"}
	c := &remoting.Command{Fields: map[string]string{"topic": "t", "queueId": "0"}, Body: []byte("body")}
	account.Sign(c)
	// printf key0tbody | openssl dgst -sha1 -hmac secret -binary | base64
	require.Equal(t, "B2VXRWOgsVZU4nVFLXLWCfH4s4w=", c.Fields["Signature"])
	require.True(t, account.Signed(c))
	c.Body = []byte("another")
	require.False(t, account.Signed(c))

	unsigned := &remoting.Command{}
	remoting.Account{}.Sign(unsigned)
	require.Empty(t, unsigned.Fields)
}

func TestAnAccountHidesItsSecret(t *testing.T) {
	account := remoting.Account{AccessKey: "key", SecretKey: "hush"}
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %s", account, account, account, account), "hush")
	require.NotContains(t, fmt.Sprintf("%+v", remoting.Config{Account: account}), "hush")
}
