package tiktokfake

import (
	"fmt"
	"net/http"
	"strconv"
)

// linkTo makes a share link of a product; each call makes another one.
func (s *Server) linkTo(p *Product) string {
	s.linkSeq++
	code := fmt.Sprintf("%012s", strconv.FormatInt(int64(s.linkSeq), 36))
	s.links[code] = p
	path := "/api/v1/share/" + code
	switch p.Link {
	case LinkLookalike:
		return "https://" + LinkHost + ".evil.test" + path
	case LinkPlain:
		return "http://" + LinkHost + path
	case LinkUserinfo:
		return "https://" + LinkHost + "@evil.test" + path
	case LinkPort:
		return "https://" + LinkHost + ":8443" + path
	case LinkFile:
		return "file:///etc/passwd"
	}
	return "https://" + LinkHost + path
}

// serveShare answers a share link as its product's kind says.
func (s *Server) serveShare(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	p := s.links[r.PathValue("code")]
	s.mu.Unlock()
	line := Request{Call: CallShare, Status: http.StatusNotFound}
	if r.Host != LinkHost {
		line.Problem = "share link asked of host " + r.Host
	}
	if p == nil {
		s.record(line)
		w.WriteHeader(http.StatusNotFound)
		return
	}
	line.Product = p.ID
	s.pause(r.Context(), s.options().LinkDelay)
	var location string
	line.Status, location = p.Link.status(r.URL.Path)
	s.record(line)
	if location != "" {
		w.Header().Set("Location", location)
	}
	if p.Link == LinkHang {
		s.pause(r.Context(), 1<<40)
		return
	}
	w.WriteHeader(line.Status)
	s.writeShare(w, r, p.Link)
}

func (k LinkKind) status(path string) (status int, location string) {
	switch k {
	case LinkGood:
		return http.StatusFound, "https://www.tiktok.com/view/product/1"
	case LinkGone:
		return http.StatusNotFound, ""
	case LinkForbidden:
		return http.StatusForbidden, ""
	case LinkError:
		return http.StatusBadGateway, ""
	case LinkInside:
		return http.StatusFound, "http://169.254.169.254/latest/meta-data"
	case LinkStranger:
		return http.StatusFound, "https://tiktok.com.evil.test/"
	case LinkLoop:
		return http.StatusFound, "https://" + LinkHost + path
	case LinkNoLocation:
		return http.StatusFound, ""
	}
	return http.StatusOK, ""
}

func (s *Server) writeShare(w http.ResponseWriter, r *http.Request, kind LinkKind) {
	switch kind {
	case LinkPage:
		_, _ = w.Write([]byte("<!DOCTYPE html><title>Kopi Susu</title>"))
	case LinkLie:
		_, _ = w.Write([]byte(`{"code":16032009,"message":"campaign offline","data":null}`))
	case LinkCaptcha:
		_, _ = w.Write([]byte(`<!DOCTYPE html><div id="captcha-verify">Verify to continue</div>`))
	case LinkHuge:
		chunk := make([]byte, 64<<10)
		for range 800 { // 50 MB, for whoever reads on
			if _, err := w.Write(chunk); err != nil || r.Context().Err() != nil {
				return
			}
		}
	}
}
