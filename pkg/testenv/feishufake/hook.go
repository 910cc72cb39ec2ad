package feishufake

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxBody is what the documentation allows.
const maxBody = 20 * 1024

// signWindow is how far the sender's clock may be off.
const signWindow = time.Hour

// envelope is a message's outer form.
type envelope struct {
	Timestamp string          `json:"timestamp"`
	Sign      string          `json:"sign"`
	Type      string          `json:"msg_type"`
	Content   json.RawMessage `json:"content"`
	Card      json.RawMessage `json:"card"`
}

// card is the part of a card, version 2.0, that the fake knows; others are refused as the
// service refuses properties that it does not know.
type card struct {
	Schema string `json:"schema"`
	Config *struct {
		UpdateMulti *bool `json:"update_multi"`
	} `json:"config"`
	Header struct {
		Title    text    `json:"title"`
		Subtitle *text   `json:"subtitle"`
		Template string  `json:"template"`
		Tags     []label `json:"text_tag_list"`
	} `json:"header"`
	Body struct {
		Elements []element `json:"elements"`
	} `json:"body"`
}

type text struct {
	Tag     string `json:"tag"`
	Content string `json:"content"`
}

type label struct {
	Tag   string `json:"tag"`
	Text  text   `json:"text"`
	Color string `json:"color"`
}

type element struct {
	Tag     string `json:"tag"`
	Content string `json:"content"`
}

func (s *Server) serveHook(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<22))
	if err != nil {
		return
	}
	m := Message{Body: string(body)}
	if reason, refused := s.check(r, body, &m); reason != "" {
		m.Verdict, m.Code = reason, refuse(w, refused)
		s.record(m)
		return
	}
	b := s.next()
	_, refused := refusalOf(b.Kind)
	m.Verdict = string(b.Kind)
	m.Shown = !refused && b.Kind != HTML && b.Kind != Nothing && b.Kind != Empty
	if refused, ok := refusalOf(b.Kind); ok {
		m.Code = refused.code
	}
	s.record(m) // before the answer: whoever got it may look at the record
	answer(w, b)
}

// check returns why the message is refused, or "" after filling m.
func (s *Server) check(r *http.Request, body []byte, m *Message) (string, refusal) {
	if r.PathValue("token") != s.o.Token {
		return "unknown hook", refusal{400, 19001, "param invalid: incoming webhook access token invalid"}
	}
	if len(body) > maxBody {
		r, _ := refusalOf(TooLarge)
		return "too large", r
	}
	bad := func(why string) (string, refusal) {
		return why, refusal{400, 9499, "Bad Request"}
	}
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") || !utf8.Valid(body) {
		return bad("not UTF-8 JSON")
	}
	var e envelope
	if err := strict(body, &e); err != nil {
		return bad("body: " + err.Error())
	}
	if err := e.read(m); err != nil {
		return bad(err.Error())
	}
	if !s.signed(e) {
		r, _ := refusalOf(BadSign)
		return "signature", r
	}
	if s.limited() {
		r, _ := refusalOf(Limited)
		return "over the limits", r
	}
	return "", refusal{}
}

// signed checks the signature: the key is timestamp and secret, the message is empty.
func (s *Server) signed(e envelope) bool {
	if s.o.Secret == "" {
		return true
	}
	seconds, err := strconv.ParseInt(e.Timestamp, 10, 64)
	if err != nil || s.o.Clock().Sub(time.Unix(seconds, 0)).Abs() > signWindow {
		return false
	}
	mac := hmac.New(sha256.New, []byte(e.Timestamp+"\n"+s.o.Secret))
	return hmac.Equal([]byte(base64.StdEncoding.EncodeToString(mac.Sum(nil))), []byte(e.Sign))
}

// read fills the record from the message.
func (e envelope) read(m *Message) error {
	m.Type = e.Type
	switch e.Type {
	case "text":
		var c struct {
			Text string `json:"text"`
		}
		if err := strict(e.Content, &c); err != nil || c.Text == "" {
			return errors.New("text without text")
		}
		m.Text, m.Mentions = c.Text, strings.Contains(c.Text, "<at")
		return nil
	case "interactive":
		var c card
		if err := strict(e.Card, &c); err != nil {
			return fmt.Errorf("card: %w", err)
		}
		return c.read(m)
	}
	return fmt.Errorf("unknown msg_type %q", e.Type)
}

func (c card) read(m *Message) error {
	if c.Schema != "2.0" || c.Header.Title.Tag != "plain_text" || c.Header.Title.Content == "" || len(c.Body.Elements) == 0 {
		return errors.New("card: not a card of version 2.0 with a title and elements")
	}
	m.Title = c.Header.Title.Content
	var lines []string
	if c.Header.Subtitle != nil {
		lines = append(lines, c.Header.Subtitle.Content)
	}
	for _, t := range c.Header.Tags {
		if t.Tag != "text_tag" || t.Text.Tag != "plain_text" {
			return errors.New("card: a label that is no text_tag")
		}
		lines = append(lines, t.Text.Content)
	}
	for _, e := range c.Body.Elements {
		switch e.Tag {
		case "markdown":
			m.Mentions = m.Mentions || strings.Contains(e.Content, "<at")
			lines = append(lines, html.UnescapeString(e.Content))
		case "hr":
		default:
			return fmt.Errorf("card: unknown element %q", e.Tag)
		}
	}
	m.Text = strings.Join(lines, "\n")
	return nil
}

// strict decodes one JSON value and nothing else.
func strict(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one value")
	}
	return nil
}
