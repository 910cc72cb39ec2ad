package remoting

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that callers test by errors.Is.
var (
	// ErrUnreachable: nobody answers at the address.
	ErrUnreachable = errors.New("cannot be reached")
	// ErrSilent is an ErrUnreachable whose address takes connections: the process
	// hangs, or something between us swallows the traffic.
	ErrSilent = fmt.Errorf("%w: it takes connections and does not answer", ErrUnreachable)
	// ErrTopicMissing: the name servers answer, and know no such topic.
	ErrTopicMissing = errors.New("topic does not exist")
	// ErrRefused: the server answered that it will not; errors.As finds its Refusal.
	ErrRefused = errors.New("refused")
	// ErrDenied is an ErrRefused for the sake of the account.
	ErrDenied = fmt.Errorf("%w: access denied: check access key, secret key and the account's permissions", ErrRefused)
	// ErrWrongKey is an ErrDenied whose key is unknown or whose secret is another's.
	ErrWrongKey = fmt.Errorf("%w: the key is not known, or its secret is wrong", ErrDenied)
	// ErrGroupMissing is an ErrRefused: there is no such consumer group.
	ErrGroupMissing = fmt.Errorf("%w: consumer group does not exist", ErrRefused)
	// ErrClosed: the Client was closed.
	ErrClosed = errors.New("remoting client is closed")
)

// Codes of responses that we tell apart.
const (
	codeOK              = 0
	codeError           = 1
	codeNoPermission    = 16
	codeTopicMissing    = 17
	codePullNotFound    = 19
	codePullRetry       = 20
	codePullOffsetMoved = 21
	codeOffsetNotFound  = 22
	codeGroupMissing    = 26
	codeGroupOffline    = 206
)

// longestRemark is how much of a server's reason an error quotes.
const longestRemark = 200

// Refusal is a server's answer other than success.
type Refusal struct {
	Addr string
	// Request and Code are the protocol's numbers of what was asked and answered.
	Request, Code int
	// Remark is the server's reason: its first line, without keys.
	Remark string
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%s answers request %d with code %d: %s", r.Addr, r.Request, r.Code, r.Remark)
}

// Unwrap says what kind of refusal it is. Versions 4 answer a wrong key with a
// general code and the name of an exception.
func (r *Refusal) Unwrap() error {
	if r.Code == codeGroupMissing {
		return ErrGroupMissing
	}
	for _, text := range wrongKeyTexts {
		if strings.Contains(r.Remark, text) {
			return ErrWrongKey
		}
	}
	if r.Code == codeNoPermission || strings.Contains(r.Remark, "AclException") {
		return ErrDenied
	}
	return ErrRefused
}

// wrongKeyTexts are what versions 4 and 5 say of a key that is unknown, or that did
// not sign what came.
var wrongKeyTexts = [...]string{"Check signature failed", "check signature failed", "No acl config", "No accessKey", "User not found"}

// refusal keeps the remark short and free of keys: brokers put the key into it,
// and whole stack traces.
func refusal(addr string, request *Command, answer *Command, account Account) *Refusal {
	remark, _, _ := strings.Cut(strings.TrimSpace(answer.Remark), "\n")
	for _, secret := range []string{account.AccessKey, account.SecretKey} {
		if secret != "" {
			remark = strings.ReplaceAll(remark, secret, "***")
		}
	}
	if len(remark) > longestRemark {
		remark = strings.ToValidUTF8(remark[:longestRemark], "") + "…"
	}
	return &Refusal{Addr: addr, Request: request.Code, Code: answer.Code, Remark: remark}
}
