package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
)

// maxLinkBatch is how many links one call makes at most.
const maxLinkBatch = 50

// idText is an id, which the platform sends as text or as a number beyond what a float
// holds. Only what may stand in a path is taken.
type idText string

var (
	idForm     = regexp.MustCompile(`^[0-9A-Za-z_-]{1,32}$`)
	amountForm = regexp.MustCompile(`^-?[0-9]{1,20}(\.[0-9]{1,8})?$`)
	errForm    = errors.New("value is not of the known form")
)

// UnmarshalJSON keeps the digits as they came.
func (id *idText) UnmarshalJSON(raw []byte) error {
	text, err := textOf(raw)
	if err != nil || !idForm.MatchString(text) {
		return errForm
	}
	*id = idText(text)
	return nil
}

// amount is money as the platform writes it; it never becomes a float.
type amount string

// UnmarshalJSON takes text or a number, without exponent.
func (a *amount) UnmarshalJSON(raw []byte) error {
	text, err := textOf(raw)
	if err != nil || (text != "" && !amountForm.MatchString(text)) {
		return errForm
	}
	*a = amount(text)
	return nil
}

// whole is an integer that may come as text; basis points of a commission are one.
type whole int64

// UnmarshalJSON refuses fractions.
func (w *whole) UnmarshalJSON(raw []byte) error {
	text, err := textOf(raw)
	if err != nil {
		return err
	}
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return errForm
	}
	*w = whole(n)
	return nil
}

func textOf(raw []byte) (string, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) > 0 && raw[0] == '"' {
		var text string
		err := json.Unmarshal(raw, &text)
		return text, err
	}
	if string(raw) == "null" {
		return "", nil
	}
	var n json.Number
	err := json.Unmarshal(raw, &n)
	return n.String(), err
}

type campaign struct {
	ID   idText `json:"id"`
	Name string `json:"name"`
}

type price struct {
	Amount   amount `json:"amount"`
	Currency string `json:"currency"`
}

// product is what is kept of a product. Commissions are basis points.
type product struct {
	ID                idText `json:"id"`
	ReviewStatus      string `json:"review_status"`
	Name              string `json:"name"`
	Image             string `json:"main_image_url"`
	Lowest            price  `json:"lowest_price"`
	Highest           price  `json:"highest_price"`
	Inventory         whole  `json:"inventory"`
	Shop              string `json:"shop_name"`
	TotalCommission   whole  `json:"total_commission_rate"`
	CreatorCommission whole  `json:"creator_commission_rate"`
	PartnerCommission whole  `json:"partner_commission_rate"`
	OpenCommission    whole  `json:"open_collaboration_commission_rate"`
	Available         bool   `json:"is_available"`
	Sales             whole  `json:"product_sales"`
	Category          struct {
		ID   idTextOrNone `json:"id"`
		Name string       `json:"name"`
	} `json:"category"`
}

// idTextOrNone is an id that may be missing.
type idTextOrNone string

// UnmarshalJSON takes nothing as nothing.
func (id *idTextOrNone) UnmarshalJSON(raw []byte) error {
	text, err := textOf(raw)
	if err != nil || (text != "" && !idForm.MatchString(text)) {
		return errForm
	}
	*id = idTextOrNone(text)
	return nil
}

// page is one answer of a list.
type page[T any] struct {
	items []T
	next  string
	total int
}

// listAnswer: a list that is missing although there should be something is no list.
func listAnswer[T any](call string, items *[]T, next string, total whole) (page[T], error) {
	p := page[T]{next: next, total: int(total)}
	switch {
	case items != nil:
		p.items = *items
	case total != 0 || next != "":
		return p, &apiError{call: call, name: "success without a list", kind: transient}
	}
	return p, nil
}

// campaigns reads a page of the list of campaigns.
func (c *client) campaigns(ctx context.Context, token string) (page[campaign], error) {
	var data struct {
		Campaigns *[]campaign `json:"campaigns"`
		Next      string      `json:"next_page_token"`
		Total     whole       `json:"total_count"`
	}
	query := pageQuery(listPageSize, token)
	query.Set("type", c.cfg.CampaignType)
	query.Set("status", c.cfg.CampaignStatus)
	r := request{name: "campaigns", method: http.MethodGet, path: "/affiliate_partner/202405/campaigns", query: query, cipher: true}
	if err := c.call(ctx, r, &data); err != nil {
		return page[campaign]{}, err
	}
	return listAnswer(r.name, data.Campaigns, data.Next, data.Total)
}

// products reads a page of a campaign's products.
func (c *client) products(ctx context.Context, campaignID, token string) (page[product], error) {
	var data struct {
		Products *[]product `json:"products"`
		Next     string     `json:"next_page_token"`
		Total    whole      `json:"total_count"`
	}
	r := request{
		name: "products", method: http.MethodGet, cipher: true, query: pageQuery(c.cfg.PageSize, token),
		path: "/affiliate_partner/202405/campaigns/" + campaignID + "/products",
	}
	if err := c.call(ctx, r, &data); err != nil {
		return page[product]{}, err
	}
	return listAnswer(r.name, data.Products, data.Next, data.Total)
}

func pageQuery(size int, token string) url.Values {
	query := url.Values{"page_size": {strconv.Itoa(size)}}
	if token != "" {
		query.Set("page_token", token)
	}
	return query
}

// links makes share links for at most maxLinkBatch products. Products that the platform
// failed on are simply not in the result; the next round asks for them again.
func (c *client) links(ctx context.Context, campaignID string, ids []string) (map[string]string, error) {
	body, err := json.Marshal(map[string][]string{"product_ids": ids})
	if err != nil {
		return nil, asAPIError("links", err)
	}
	var data struct {
		Links []struct {
			ProductID idText `json:"product_id"`
			Link      string `json:"link"`
		} `json:"product_promotion_links"`
	}
	r := request{
		name: "links", method: http.MethodPost, cipher: true, body: body,
		path: "/affiliate_partner/202505/campaigns/" + campaignID + "/products/promotion_links/generate_batch",
	}
	if err := c.call(ctx, r, &data); err != nil {
		return nil, err
	}
	made := make(map[string]string, len(data.Links))
	for _, l := range data.Links {
		made[string(l.ProductID)] = l.Link
	}
	return made, nil
}

// fetchCipher asks for the cipher of the market.
func (c *client) fetchCipher(ctx context.Context) (string, error) {
	var data struct {
		Assets []struct {
			Cipher string `json:"cipher"`
			Market string `json:"target_market"`
		} `json:"category_assets"`
	}
	r := request{name: "assets", method: http.MethodGet, path: "/authorization/202405/category_assets"}
	if err := c.call(ctx, r, &data); err != nil {
		return "", err
	}
	for _, a := range data.Assets {
		if a.Market == c.cfg.market() && a.Cipher != "" {
			return a.Cipher, nil
		}
	}
	return "", &apiError{call: r.name, name: "no cipher for market " + c.cfg.market(), kind: config}
}
