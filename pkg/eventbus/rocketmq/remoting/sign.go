package remoting

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"maps"
	"slices"
)

// The fields that signing adds.
const (
	fieldAccessKey = "AccessKey"
	fieldSignature = "Signature"
)

// Account is an access key with its secret. The zero value signs nothing.
type Account struct{ AccessKey, SecretKey string }

// String hides the secret from formatted output.
func (a Account) String() string { return "account " + a.AccessKey }

// GoString is String: %#v must not show the secret either.
func (a Account) GoString() string { return a.String() }

// Sign adds key and signature to a request. It must be the last change to it.
func (a Account) Sign(c *Command) {
	if a.AccessKey == "" {
		return
	}
	if c.Fields == nil {
		c.Fields = make(map[string]string)
	}
	c.Fields[fieldAccessKey] = a.AccessKey
	c.Fields[fieldSignature] = a.signature(c)
}

// Signed tells whether a request bears this account's signature.
func (a Account) Signed(c *Command) bool {
	return c.Fields[fieldAccessKey] == a.AccessKey &&
		hmac.Equal([]byte(c.Fields[fieldSignature]), []byte(a.signature(c)))
}

// signature is over the values of all fields but its own, in the order of their
// names, and the body.
func (a Account) signature(c *Command) string {
	mac := hmac.New(sha1.New, []byte(a.SecretKey))
	for _, name := range slices.Sorted(maps.Keys(c.Fields)) {
		if name != fieldSignature {
			mac.Write([]byte(c.Fields[name]))
		}
	}
	mac.Write(c.Body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
