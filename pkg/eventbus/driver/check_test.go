package driver_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

func TestCheck(t *testing.T) {
	good := driver.Message{Topic: "beex-id-events", Tag: "PUSH_DISPATCH", Key: "push:1", Body: []byte("{}"),
		Headers: map[string]string{"größe": "优惠券", "empty": ""}}
	if err := driver.Check(&good); err != nil {
		t.Fatalf("a good message was refused: %v", err)
	}
	for name, spoil := range map[string]func(m *driver.Message){
		"no topic":            func(m *driver.Message) { m.Topic = "" },
		"no tag":              func(m *driver.Message) { m.Tag = "" },
		"tag with separator":  func(m *driver.Message) { m.Tag = "A || B" },
		"no key":              func(m *driver.Message) { m.Key = "" },
		"key with a blank":    func(m *driver.Message) { m.Key = "push 1" },
		"key that is no text": func(m *driver.Message) { m.Key = "\xff\xfe" },
		"no body":             func(m *driver.Message) { m.Body = nil },
		"body too large":      func(m *driver.Message) { m.Body = make([]byte, driver.MaxBodyBytes+1) },
		"control character":   func(m *driver.Message) { m.Headers = map[string]string{"a": "x\x01y"} },
		"nameless header":     func(m *driver.Message) { m.Headers = map[string]string{"": "x"} },
		"headers too large": func(m *driver.Message) {
			m.Headers = map[string]string{"a": strings.Repeat("x", driver.MaxHeaderBytes)}
		},
		"newline in a tag":     func(m *driver.Message) { m.Tag = "A\n" },
		"key longer than most": func(m *driver.Message) { m.Key = strings.Repeat("k", driver.MaxKeyBytes+1) },
	} {
		m := good
		spoil(&m)
		if err := driver.Check(&m); !errors.Is(err, driver.ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	exact := good
	exact.Body = make([]byte, driver.MaxBodyBytes)
	if err := driver.Check(&exact); err != nil {
		t.Errorf("the largest body was refused: %v", err)
	}
}

func TestZeroValuesAreSafe(t *testing.T) {
	var o driver.Outcome
	var r driver.Result
	if o.Verdict != driver.Retry || r.Status != driver.Unavailable {
		t.Error("a forgotten value means success")
	}
	if (driver.Count{}).Known || (driver.Age{}).Known {
		t.Error("a forgotten figure is known")
	}
}
