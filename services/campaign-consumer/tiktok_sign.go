package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/url"
	"slices"
)

// sign computes a request's signature over exactly what is sent: the escaped path as it
// goes over the wire, the query's decoded values in the order of their keys, and the
// body's own bytes. The signature and the token are not part of it.
func sign(secret, path string, query url.Values, body []byte) string {
	text := []byte(secret + path)
	for _, key := range slices.Sorted(maps.Keys(query)) {
		if key == "sign" || key == "access_token" {
			continue
		}
		text = append(text, key...)
		text = append(text, query.Get(key)...)
	}
	text = append(text, body...)
	text = append(text, secret...)
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write(text) // hash.Hash never fails
	return hex.EncodeToString(mac.Sum(nil))
}
