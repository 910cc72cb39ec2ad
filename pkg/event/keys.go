package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// errKeys: an object names one key twice. Programs disagree on which value counts: Go
// takes the last one and ignores case, others the first, or go by the exact name.
var errKeys = errors.New("an object names a key twice, exactly or in another case")

// decode reads a payload of a type, if every program reads it alike.
func decode(t Type, body []byte, into any) error {
	if json.Unmarshal(body, into) != nil {
		// The decoder's message may quote the payload; its kind is enough here.
		return fmt.Errorf("%w: %s is not the expected JSON object (%d bytes)", ErrPayload, t, len(body))
	}
	if err := checkKeys(body); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrPayload, t, err)
	}
	return nil
}

// checkKeys returns errKeys for valid JSON in which a key stands twice. The error names
// no key: keys are part of the payload.
func checkKeys(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var open []*level
	for {
		token, err := d.Token()
		if err != nil {
			return fmt.Errorf("read keys: %w", err) // valid JSON ends with its last bracket
		}
		switch {
		case token == json.Delim('{'):
			open = append(open, &level{seen: map[string]bool{}, key: true})
			continue
		case token == json.Delim('['):
			open = append(open, &level{})
			continue
		case token == json.Delim('}') || token == json.Delim(']'):
			open = open[:len(open)-1]
		case len(open) > 0 && open[len(open)-1].key:
			if !open[len(open)-1].name(token.(string)) {
				return errKeys
			}
			continue
		}
		if len(open) == 0 {
			return nil
		}
		open[len(open)-1].key = open[len(open)-1].seen != nil
	}
}

// level is an object or a list that is being read; seen is nil in a list.
type level struct {
	seen map[string]bool
	// key: the next token is a key.
	key bool
}

// name takes a key, and reports whether it is new.
func (l *level) name(key string) bool {
	key = strings.Map(fold, key)
	fresh := !l.seen[key]
	l.seen[key] = true
	l.key = false
	return fresh
}

// fold makes runes equal that encoding/json takes for equal in a key.
func fold(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return least
}
