package fcmfake

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"time"
)

const maxPayload = 4096

// message is a request body as far as the fake looks at it.
type message struct {
	Token, Topic, Condition string
	Notification            struct{ Title, Body string }
	Data                    map[string]string
	Android                 struct {
		TTL          string
		Priority     string
		Notification struct{ Tag string }
	}
	APNS struct{ Headers map[string]string }
}

// shape lists the field names that the service knows, letter for letter; nil is a leaf
// or a free-form object.
type shape map[string]shape

func requestShape() shape {
	return shape{
		"validate_only": nil,
		"message": {
			"token": nil, "topic": nil, "condition": nil, "data": nil, "fcm_options": nil, "webpush": nil,
			"notification": {"title": nil, "body": nil, "image": nil},
			"android": {
				"collapse_key": nil, "priority": nil, "ttl": nil, "restricted_package_name": nil, "data": nil,
				"fcm_options": nil, "direct_boot_ok": nil,
				"notification": {
					"title": nil, "body": nil, "icon": nil, "color": nil, "sound": nil, "tag": nil,
					"click_action": nil, "channel_id": nil, "image": nil, "notification_priority": nil,
				},
			},
			"apns": {"headers": nil, "payload": nil, "fcm_options": nil},
		},
	}
}

// serveSend is messages:send.
func (s *Server) serveSend(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	msg, why := s.admit(w, r)
	line := Request{
		At: at, Token: msg.Token, CollapseID: msg.APNS.Headers["apns-collapse-id"],
		Tag: msg.Android.Notification.Tag, TTL: msg.Android.TTL, Title: msg.Notification.Title, Body: msg.Notification.Body,
	}
	if why != nil {
		line.Verdict, line.Status, line.Problem = "refused", why.status, why.message
		s.record(line)
		why.write(w, 0)
		return
	}
	b := s.behaviourFor(msg.Token)
	line.Verdict = string(b.Kind)
	s.answer(w, r, b, line)
}

// answer records the request before the client can know the result, so that the
// record is never behind what a client has seen.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, b Behaviour, line Request) {
	name := fmt.Sprintf("projects/%s/messages/%s", s.project, randomHex(8))
	if refusal, refused := refusalOf(b.Kind); refused {
		line.Status = refusal.status
		line.Accepted = b.Kind == UnavailableAccepted
		s.record(line)
		refusal.write(w, b.RetryAfter)
		return
	}
	switch b.Kind {
	case HTML404, HTML200:
		line.Status = http.StatusNotFound
		if b.Kind == HTML200 {
			line.Status = http.StatusOK
			s.record(line)
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte("<html>please log in</html>"))
			return
		}
		s.record(line)
		answerHTML(w)
		return
	case AmbiguousClose:
		line.Accepted, line.Name = true, name
		s.record(line)
		panic(http.ErrAbortHandler) // net/http's own way to drop the connection
	case AmbiguousLate, Slow:
		line.Accepted, line.Name, line.Status = true, name, http.StatusOK
		if b.Kind == AmbiguousLate {
			s.record(line)
		}
		wait(r, b.Delay)
		if b.Kind == Slow {
			s.record(line)
		}
	default:
		line.Accepted, line.Name, line.Status = true, name, http.StatusOK
		s.record(line)
	}
	writeJSON(w, http.StatusOK, map[string]string{"name": name})
}

func wait(r *http.Request, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
}

// admit checks everything that does not depend on the device.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (message, *refusal) {
	var m message
	if r.PathValue("call") != "messages:send" {
		return m, &refusal{status: 404, code: "NOT_FOUND", message: "Method not found."}
	}
	if !s.authorized(r) {
		no, _ := refusalOf(Unauthorized)
		return m, &no
	}
	if r.PathValue("project") != s.project {
		no, _ := refusalOf(Forbidden)
		return m, &no
	}
	if ct, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || ct != "application/json" {
		return m, badRequest("Content-Type", "content type is not application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		return m, badRequest("", "body cannot be read")
	}
	var raw map[string]any
	if err := json.Unmarshal(body, &raw); err != nil {
		return m, badRequest("", "Invalid JSON payload received.")
	}
	if field := unknownField("", raw, requestShape()); field != "" {
		return m, badRequest(field, "Invalid JSON payload received. Unknown name.")
	}
	var request struct{ Message message }
	if err := json.Unmarshal(body, &request); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return m, badRequest(strings.ToLower(wrong.Field), "Invalid value")
		}
		return m, badRequest("", "Invalid JSON payload received.")
	}
	return request.Message, request.Message.problem()
}

// problem returns what the service would say of the message's contents.
func (m message) problem() *refusal {
	targets := 0
	for _, t := range []string{m.Token, m.Topic, m.Condition} {
		if t != "" {
			targets++
		}
	}
	if targets != 1 {
		return badRequest("message", "Exactly one of token, topic or condition is required")
	}
	size := len(m.Notification.Title) + len(m.Notification.Body)
	for k, v := range m.Data {
		if k == "from" || k == "message_type" || strings.HasPrefix(k, "google") || strings.HasPrefix(k, "gcm") {
			return badRequest("message.data", "Invalid data payload key: "+k)
		}
		size += len(k) + len(v)
	}
	if size > maxPayload {
		return badRequest("message", fmt.Sprintf("Message payload of %d bytes is too big", size))
	}
	if ttl := m.Android.TTL; ttl != "" && !validTTL(ttl) {
		return badRequest("message.android.ttl", "Invalid TTL")
	}
	if id := m.APNS.Headers["apns-collapse-id"]; len(id) > 64 {
		return badRequest("message.apns.headers", "apns-collapse-id is longer than 64 bytes")
	}
	return nil
}

func validTTL(ttl string) bool {
	if ok, err := regexp.MatchString(`^\d{1,7}(\.\d{1,9})?s$`, ttl); err != nil || !ok {
		return false
	}
	d, err := time.ParseDuration(ttl)
	return err == nil && d <= 2_419_200*time.Second
}

func unknownField(prefix string, object map[string]any, known shape) string {
	for name, value := range object {
		inner, ok := known[name]
		if !ok {
			return prefix + name
		}
		if nested, isObject := value.(map[string]any); isObject && inner != nil {
			if field := unknownField(prefix+name+".", nested, inner); field != "" {
				return field
			}
		}
	}
	return ""
}

func badRequest(field, message string) *refusal {
	return &refusal{status: 400, code: "INVALID_ARGUMENT", message: message, fcm: "INVALID_ARGUMENT", fields: []string{field}}
}
