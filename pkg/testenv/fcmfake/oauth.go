package fcmfake

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	clientEmail = "push@seahub-test.iam.gserviceaccount.com"
	keyID       = "fcmfake-key-1"
	scope       = "https://www.googleapis.com/auth/firebase.messaging"
	grantType   = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	// clockSkew and maxLife are what Google grants an assertion.
	clockSkew = 5 * time.Minute
	maxLife   = time.Hour
)

// writeKeyFile writes a service account key as the console hands it out.
func (s *Server) writeKeyFile() error {
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		return fmt.Errorf("fcmfake: encode key: %w", err)
	}
	body, err := json.MarshalIndent(map[string]string{
		"type": "service_account", "project_id": s.project, "private_key_id": keyID,
		"private_key":  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"client_email": clientEmail, "token_uri": s.url + "/token",
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("fcmfake: encode key file: %w", err)
	}
	if err := os.WriteFile(s.keyFile, body, 0o600); err != nil {
		return fmt.Errorf("fcmfake: write key file: %w", err)
	}
	return nil
}

// serveToken exchanges an assertion for an access token.
func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
	if ct := r.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/x-www-form-urlencoded") {
		oauthError(w, "invalid_request", "content type is not a form")
		return
	}
	if err := r.ParseForm(); err != nil {
		oauthError(w, "invalid_request", "form cannot be read")
		return
	}
	if got := r.PostForm.Get("grant_type"); got != grantType {
		oauthError(w, "unsupported_grant_type", "grant type is not jwt-bearer")
		return
	}
	if err := s.checkAssertion(r.PostForm.Get("assertion"), time.Now()); err != nil {
		oauthError(w, "invalid_grant", err.Error())
		return
	}
	token := "ya29.fake-" + randomHex(16)
	s.mu.Lock()
	s.tokens[token] = time.Now().Add(s.tokenLife)
	s.issued++
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{
		"access_token": token, "token_type": "Bearer", "expires_in": max(1, int(s.tokenLife/time.Second)),
	})
}

// checkAssertion verifies signature and claims of an RS256 JWT.
func (s *Server) checkAssertion(assertion string, now time.Time) error {
	parts := strings.Split(assertion, ".")
	if len(parts) != 3 {
		return errors.New("assertion is not a JWT of three parts")
	}
	var header struct{ Alg, Typ, Kid string }
	if err := decodePart(parts[0], &header); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	if header.Alg != "RS256" || header.Kid != keyID {
		return fmt.Errorf("header says alg %q and kid %q", header.Alg, header.Kid)
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return errors.New("signature is not base64url")
	}
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(&s.key.PublicKey, crypto.SHA256, digest[:], signature); err != nil {
		return errors.New("invalid JWT signature")
	}
	var claims struct {
		Iss, Aud, Scope string
		Exp, Iat        int64
	}
	if err := decodePart(parts[1], &claims); err != nil {
		return fmt.Errorf("claims: %w", err)
	}
	issued, expires := time.Unix(claims.Iat, 0), time.Unix(claims.Exp, 0)
	switch {
	case claims.Iss != clientEmail:
		return fmt.Errorf("iss is %q", claims.Iss)
	case claims.Aud != s.url+"/token":
		return fmt.Errorf("aud is %q", claims.Aud)
	case claims.Scope != scope:
		return fmt.Errorf("scope is %q", claims.Scope)
	case issued.After(now.Add(clockSkew)):
		return errors.New("iat is in the future")
	case !expires.After(now):
		return errors.New("exp has passed")
	case expires.Sub(issued) > maxLife+clockSkew:
		return errors.New("exp is more than an hour after iat")
	}
	return nil
}

func decodePart(part string, v any) error {
	raw, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return errors.New("not base64url")
	}
	return json.Unmarshal(raw, v)
}

// authorized says whether the request carries an access token that is valid now.
func (s *Server) authorized(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	expires, known := s.tokens[token]
	return known && time.Now().Before(expires)
}

func oauthError(w http.ResponseWriter, code, description string) {
	writeJSON(w, http.StatusBadRequest, map[string]string{"error": code, "error_description": description})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone, as some tests want it
}
