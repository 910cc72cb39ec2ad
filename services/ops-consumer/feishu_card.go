package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seahub/seahub-mq/pkg/event"
)

// maxCard is the size from which a message goes as text: Feishu refuses bodies above 20 KB.
const maxCard = 18 * 1024

// mostItems bounds the alerts of one card; the worst come first.
const mostItems = 20

type plainText struct {
	Tag     string `json:"tag"`
	Content string `json:"content"`
}

type tagged struct {
	Tag   string    `json:"tag"`
	Text  plainText `json:"text"`
	Color string    `json:"color"`
}

type element struct {
	Tag     string `json:"tag"`
	Content string `json:"content,omitempty"`
}

// card is a card of version 2.0, in which unknown properties are errors.
type card struct {
	Schema string `json:"schema"`
	Header struct {
		Title    plainText `json:"title"`
		Subtitle plainText `json:"subtitle"`
		Template string    `json:"template"`
		Tags     []tagged  `json:"text_tag_list"`
	} `json:"header"`
	Body struct {
		Elements []element `json:"elements"`
	} `json:"body"`
}

// feishuBody is a message as the bot takes it, without its signature.
type feishuBody struct {
	Timestamp string          `json:"timestamp,omitempty"`
	Sign      string          `json:"sign,omitempty"`
	Type      string          `json:"msg_type"`
	Content   *textContent    `json:"content,omitempty"`
	Card      json.RawMessage `json:"card,omitempty"`
}

type textContent struct {
	Text string `json:"text"`
}

func plain(s string) plainText { return plainText{"plain_text", escapeText(clean(s, 200))} }

// body renders the message as a card, or as text where the card would be too large.
func (m message) body(asText bool) (feishuBody, error) {
	if !asText {
		raw, err := json.Marshal(m.card())
		if err != nil {
			return feishuBody{}, fmt.Errorf("encode the card of %s: %w", m.Rule, err)
		}
		if len(raw) <= maxCard {
			return feishuBody{Type: "interactive", Card: raw}, nil
		}
	}
	return feishuBody{Type: "text", Content: &textContent{m.text()}}, nil
}

func (m message) template() string {
	if m.Kind == kindResolved {
		return "green"
	}
	switch m.Severity {
	case severityCritical:
		return "red"
	case severityWarning:
		return "orange"
	}
	return "blue"
}

func (m message) card() card {
	var c card
	c.Schema = "2.0"
	c.Header.Title, c.Header.Subtitle, c.Header.Template = plain(m.title()), plain(m.Service+" · "+m.Env), m.template()
	for _, t := range []string{m.Env, m.Country, m.Service} {
		c.Header.Tags = append(c.Header.Tags, tagged{"text_tag", plain(t), "neutral"})
	}
	text := func(s string) { c.Body.Elements = append(c.Body.Elements, element{Tag: "markdown", Content: s}) }
	text("**" + escapeMarkdown(clean(m.Summary, 500)) + "**")
	for i, it := range m.Items {
		if i == mostItems {
			text(fmt.Sprintf("… and %d more", len(m.Items)-mostItems))
			break
		}
		text(strings.Join(it.lines(escapeMarkdown), "\n"))
	}
	c.Body.Elements = append(c.Body.Elements, element{Tag: "hr"})
	foot := "decided " + event.FormatTime(m.At) + " by " + escapeMarkdown(m.SweepID)
	text(runbookLink(m.Runbook) + "\n" + foot)
	return c
}

// runbookLink makes a link of an address; a path stays text.
func runbookLink(runbook string) string {
	if strings.HasPrefix(runbook, "https://") || strings.HasPrefix(runbook, "http://") {
		if !strings.ContainsAny(runbook, "()[]<> \n") {
			return "[runbook](" + runbook + ")"
		}
	}
	return "runbook: " + escapeMarkdown(clean(runbook, 300))
}

// escapeMarkdown takes the meaning from all that means something in a card's markdown:
// mentions, links, emphasis. Feishu shows numeric character references as characters.
func escapeMarkdown(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune("<>&*_~`[]()#|\\!{}@$\"'", r) {
			fmt.Fprintf(&b, "&#%d;", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// escapeText is for text messages, where only a tag means something.
func escapeText(s string) string {
	return strings.NewReplacer("<", "＜", ">", "＞").Replace(s)
}

// text is the message without a card, cut to a size that is surely taken.
func (m message) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\nenv: %s\ncountry: %s\nservice: %s\nrunbook: %s\ndecided %s by %s\n", escapeText(clean(m.title(), 200)), escapeText(clean(m.Summary, 500)),
		escapeText(m.Env), escapeText(m.Country), escapeText(m.Service), escapeText(clean(m.Runbook, 300)), event.FormatTime(m.At), m.SweepID)
	for i, it := range m.Items {
		block := "\n" + strings.Join(it.lines(escapeText), "\n") + "\n"
		if b.Len()+len(block) > maxCard/2 { // JSON may need more bytes for a character than UTF-8
			fmt.Fprintf(&b, "\n… and %d more", len(m.Items)-i)
			break
		}
		b.WriteString(block)
	}
	return b.String()
}
