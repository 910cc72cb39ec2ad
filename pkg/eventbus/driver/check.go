package driver

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a message, the same on every broker, so that what one takes the other
// takes as well: the sizes are below the smallest broker's, and the forbidden bytes
// are those by which RocketMQ separates keys, tags and properties.
const (
	MaxBodyBytes   = 1 << 20
	MaxTagBytes    = 64
	MaxKeyBytes    = 255
	MaxHeaderBytes = 16_000
)

// ErrMessage is wrapped by every error of Check.
var ErrMessage = errors.New("message cannot be published")

// Check tells whether m can be published unchanged. Drivers call it before they call
// the broker and answer Refused. The errors name fields and sizes, never contents.
func Check(m *Message) error {
	switch {
	case m.Topic == "":
		return fmt.Errorf("%w: topic is empty", ErrMessage)
	case len(m.Body) == 0:
		return fmt.Errorf("%w: body is empty", ErrMessage)
	case len(m.Body) > MaxBodyBytes:
		return fmt.Errorf("%w: body has %d bytes, at most %d are allowed: send a reference instead of the data", ErrMessage, len(m.Body), MaxBodyBytes)
	}
	if err := checkText("tag", m.Tag, MaxTagBytes); err != nil {
		return err
	}
	if strings.ContainsAny(m.Tag, "| *") {
		return fmt.Errorf("%w: tag has a blank, | or *, which have a meaning in subscriptions", ErrMessage)
	}
	if err := checkText("key", m.Key, MaxKeyBytes); err != nil {
		return err
	}
	if strings.Contains(m.Key, " ") {
		return fmt.Errorf("%w: key has a blank: brokers separate keys by blanks", ErrMessage)
	}
	total := 0
	for name, value := range m.Headers {
		total += len(name) + len(value)
		if err := checkText("header name", name, MaxHeaderBytes); err != nil {
			return err
		}
		if hasControl(value) {
			return fmt.Errorf("%w: header %q has a control character", ErrMessage, name)
		}
	}
	if total > MaxHeaderBytes {
		return fmt.Errorf("%w: headers have %d bytes, at most %d are allowed", ErrMessage, total, MaxHeaderBytes)
	}
	return nil
}

func checkText(field, v string, most int) error {
	switch {
	case v == "":
		return fmt.Errorf("%w: %s is empty", ErrMessage, field)
	case len(v) > most:
		return fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrMessage, field, len(v), most)
	case !utf8.ValidString(v):
		return fmt.Errorf("%w: %s is not valid UTF-8", ErrMessage, field)
	case hasControl(v):
		return fmt.Errorf("%w: %s has a control character", ErrMessage, field)
	}
	return nil
}

func hasControl(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}
