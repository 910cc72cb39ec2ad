package tiktokfake

import (
	"fmt"
	"strconv"
)

// Paging is how a campaign's product list misbehaves.
type Paging string

// The misbehaviours.
const (
	PagingFine Paging = ""
	// PagingRepeat hands out the same token for ever, PagingEndless always a new one.
	PagingRepeat  Paging = "repeat"
	PagingEndless Paging = "endless"
	// PagingCut ends after the first page although more is reported.
	PagingCut Paging = "cut"
	// PagingDrift removes the first product and adds another behind each page.
	PagingDrift Paging = "drift"
	// PagingDead refuses every token but the empty one, once per campaign.
	PagingDead Paging = "dead"
)

// LinkKind is how a product's share link behaves.
type LinkKind string

// The kinds. A good link redirects to the app's page.
const (
	LinkGood       LinkKind = ""
	LinkPage       LinkKind = "page" // 200 with a page
	LinkGone       LinkKind = "gone"
	LinkForbidden  LinkKind = "forbidden"
	LinkError      LinkKind = "error"
	LinkHang       LinkKind = "hang"
	LinkLie        LinkKind = "lie" // 200 with an error code in the body
	LinkCaptcha    LinkKind = "captcha"
	LinkHuge       LinkKind = "huge"
	LinkInside     LinkKind = "inside" // redirects into the network
	LinkStranger   LinkKind = "stranger"
	LinkLoop       LinkKind = "loop"
	LinkNoLocation LinkKind = "no-location"
	// These are links that must not be fetched at all.
	LinkLookalike LinkKind = "lookalike"
	LinkPlain     LinkKind = "plain"
	LinkUserinfo  LinkKind = "userinfo"
	LinkPort      LinkKind = "port"
	LinkFile      LinkKind = "file"
)

// Campaign is one campaign with its products, in the order of the list.
type Campaign struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Status   string     `json:"status"`
	Products []*Product `json:"products"`
	Paging   Paging     `json:"paging,omitempty"`

	calls  int
	denied bool
	drift  int
}

// Product is one product. Money is text, commissions are basis points.
type Product struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Lowest     string   `json:"lowest"`
	Highest    string   `json:"highest"`
	Currency   string   `json:"currency"`
	Commission int      `json:"commission"`
	Inventory  int      `json:"inventory"`
	Sales      int      `json:"sales"`
	Available  bool     `json:"available"`
	Link       LinkKind `json:"link,omitempty"`
	// FailLinks puts the product among the failed ones of so many batches.
	FailLinks int `json:"failLinks,omitempty"`
}

// firstID is beyond what a float can hold exactly.
const firstID = 7_366_211_545_890_096_901

// NewCampaign makes a campaign with n products whose ids follow from number.
func NewCampaign(number, n int) *Campaign {
	c := &Campaign{ID: strconv.FormatInt(firstID+int64(number), 10), Name: fmt.Sprintf("Promo 🎁 <%d> & Co", number), Status: "ONGOING"}
	for i := range n {
		c.Products = append(c.Products, NewProduct(number, i))
	}
	return c
}

// NewProduct is product i of campaign number.
func NewProduct(number, i int) *Product {
	return &Product{
		ID: strconv.FormatInt(1_729_382_256_910_270_001+int64(number)*100_000+int64(i), 10), Name: fmt.Sprintf("Kopi Susu %d-%d ☕", number, i),
		Lowest: strconv.Itoa(10_000+i) + ".50", Highest: strconv.Itoa(20_000 + i), Currency: "IDR",
		Commission: 1000 + i%500, Inventory: i % 97, Sales: i * 3, Available: i%11 != 0,
	}
}

// Add appends campaigns to the list.
func (s *Server) Add(campaigns ...*Campaign) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.campaigns = append(s.campaigns, campaigns...)
}

// Change lets f change a campaign in peace; nil for an unknown id.
func (s *Server) Change(id string, f func(c *Campaign)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.campaign(id))
}

func (s *Server) campaign(id string) *Campaign {
	for _, c := range s.campaigns {
		if c.ID == id {
			return c
		}
	}
	return nil
}

func (c *Campaign) product(id string) *Product {
	for _, p := range c.Products {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// advance is what happens to a drifting list between two pages.
func (c *Campaign) advance() {
	if c.Paging != PagingDrift || len(c.Products) < 2 {
		return
	}
	c.drift++
	number, _ := strconv.ParseInt(c.ID, 10, 64)
	c.Products = append(c.Products[1:], NewProduct(int(number-firstID), 50_000+c.drift))
}
