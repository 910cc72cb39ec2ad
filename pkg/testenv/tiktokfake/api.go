package tiktokfake

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

const (
	mostPerPage  = 100
	mostPerBatch = 50
)

func (s *Server) assets(*call) (any, *refusal) {
	return map[string]any{"category_assets": []map[string]any{
		{"cipher": "CIPHER-OF-ANOTHER-MARKET", "target_market": "XX", "category": map[string]any{"id": 1, "name": "x"}},
		{"cipher": s.cipher, "target_market": s.o.Market, "category": map[string]any{"id": 2, "name": "y"}},
	}}, nil
}

// page reads page_size and page_token; tokens hold "+" and "/", as the real ones do.
func (c *call) page(scope string) (size, offset int, no *refusal) {
	size, err := strconv.Atoi(c.query.Get("page_size"))
	if err != nil || size < 1 || size > mostPerPage {
		c.line.Problem = "page_size is not within 1 to 100"
		return 0, 0, &refusal{http.StatusBadRequest, 36009004, `Invalid "page_size"`, 0}
	}
	c.line.Page = c.query.Get("page_token")
	if c.line.Page == "" {
		return size, 0, nil
	}
	text, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(c.line.Page, "+/"))
	owner, rest, _ := strings.Cut(string(text), "|")
	offset, err2 := strconv.Atoi(rest)
	if err != nil || err2 != nil || owner != scope {
		c.line.Problem = "page_token is not one of ours"
		return 0, 0, badPageToken()
	}
	return size, offset, nil
}

func badPageToken() *refusal {
	return &refusal{http.StatusBadRequest, 36009004, `Invalid "page_token"`, 0}
}

func pageToken(scope string, offset int) string {
	return "+/" + base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s|%d", scope, offset))
}

func (s *Server) listCampaigns(c *call) (any, *refusal) {
	size, offset, no := c.page("list")
	if no != nil {
		return nil, no
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var wanted []*Campaign
	for _, campaign := range s.campaigns {
		if status := c.query.Get("status"); status == "" || status == campaign.Status {
			wanted = append(wanted, campaign)
		}
	}
	out := []map[string]any{}
	end := min(offset+size, len(wanted))
	for _, campaign := range wanted[min(offset, end):end] {
		out = append(out, map[string]any{"id": campaign.ID, "name": campaign.Name, "status": campaign.Status})
	}
	c.line.Items = len(out)
	next := ""
	if end < len(wanted) {
		next = pageToken("list", end)
	}
	return map[string]any{"campaigns": out, "next_page_token": next, "total_count": len(wanted)}, nil
}

func (s *Server) listProducts(c *call) (any, *refusal) {
	size, offset, no := c.page(c.line.Campaign)
	if no != nil {
		return nil, no
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	campaign := s.campaign(c.line.Campaign)
	if campaign == nil {
		return nil, &refusal{http.StatusOK, 16032005, "Campaign not found", 0}
	}
	if campaign.Paging == PagingDead && offset > 0 && !campaign.denied {
		campaign.denied = true
		return nil, badPageToken()
	}
	end := min(offset+size, len(campaign.Products))
	out := []map[string]any{}
	for _, p := range campaign.Products[min(offset, end):end] {
		out = append(out, p.wire())
	}
	c.line.Items = len(out)
	total := len(campaign.Products)
	next := campaign.next(end)
	campaign.calls++
	campaign.advance()
	return map[string]any{"products": out, "next_page_token": next, "total_count": total}, nil
}

func (c *Campaign) next(end int) string {
	switch c.Paging {
	case PagingRepeat:
		return pageToken(c.ID, 0)
	case PagingEndless:
		return "+/" + base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s|%s%d", c.ID, strings.Repeat("0", 1+c.calls), 0))
	case PagingCut:
		return ""
	}
	if end < len(c.Products) {
		return pageToken(c.ID, end)
	}
	return ""
}

func (p *Product) wire() map[string]any {
	return map[string]any{
		"id": p.ID, "review_status": "APPROVED", "name": p.Name, "main_image_url": "https://img.example/" + p.ID,
		"lowest_price":  map[string]any{"amount": p.Lowest, "currency": p.Currency},
		"highest_price": map[string]any{"amount": p.Highest, "currency": p.Currency},
		"inventory":     p.Inventory, "shop_name": "Toko", "total_commission_rate": p.Commission,
		"creator_commission_rate": p.Commission / 2, "partner_commission_rate": p.Commission - p.Commission/2,
		"open_collaboration_commission_rate": 0, "is_available": p.Available, "product_sales": p.Sales,
		"category": map[string]any{"id": "601152", "name": "Minuman"}, "product_description": "<p>besar</p>",
	}
}

// generateLinks takes ids as text or numbers and answers with numbers.
func (s *Server) generateLinks(c *call) (any, *refusal) {
	var body struct {
		ProductIDs []json.Number `json:"product_ids"`
	}
	if err := json.Unmarshal(c.body, &body); err != nil || len(body.ProductIDs) == 0 || len(body.ProductIDs) > mostPerBatch {
		c.line.Problem = "product_ids are not 1 to 50 ids"
		return nil, &refusal{http.StatusBadRequest, 36009004, `Invalid "product_ids"`, 0}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	campaign := s.campaign(c.line.Campaign)
	if campaign == nil {
		return nil, &refusal{http.StatusOK, 16032005, "Campaign not found", 0}
	}
	links, failed := []map[string]any{}, []json.Number{}
	for _, id := range body.ProductIDs {
		p := campaign.product(id.String())
		if p == nil || p.FailLinks > 0 {
			if p != nil {
				p.FailLinks--
			}
			failed = append(failed, id)
			continue
		}
		links = append(links, map[string]any{"product_id": id, "link": s.linkTo(p)})
	}
	c.line.Items = len(links)
	return map[string]any{"product_promotion_links": links, "failed_product_ids": failed}, nil
}
