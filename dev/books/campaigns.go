package books

// Campaign is one campaign as the platform holds it.
type Campaign struct {
	ID       string
	Products []Product
}

// Product is one product of a campaign, in the platform's words.
type Product struct {
	ID, Name, Lowest, Highest, Currency string
	Commission, Inventory, Sales        int
	Available                           bool
}

// ProductRow is a row of tiktok_partner_campaign_products.
type ProductRow struct {
	CampaignID string
	Product
	Active bool
	Link   string // link_status
}

// Call is one request to the platform.
type Call struct {
	// Kind is the endpoint: KindProducts, KindLinks, KindShare or another one.
	Kind string
	// Campaign and Product are what it is about.
	Campaign, Product string
	// Answered says that it got what it asked for, Problem that it broke a rule.
	Answered bool
	Problem  string
}

// The kinds of calls that are counted.
const (
	KindList     = "campaigns"
	KindProducts = "products"
	KindLinks    = "links"
	KindShare    = "share"
)

// PageSize is how many products a page of the platform's has, and a batch of links.
const PageSize = 50

const (
	linkValid = "VALID"
	listCalls = 1
)

// checkTable goes through both sides row by row.
func (a *audit) checkTable() {
	type key struct{ campaign, product string }
	rows := map[key]ProductRow{}
	for _, r := range a.tables.Products {
		rows[key{r.CampaignID, r.ID}] = r
	}
	for _, c := range a.plan.Campaigns {
		a.totals.Campaigns++
		for _, p := range c.Products {
			a.totals.Products++
			k := key{c.ID, p.ID}
			r, ok := rows[k]
			delete(rows, k)
			switch {
			case !ok:
				a.broken(promiseTable, "campaign %s: product %s has no row", c.ID, p.ID)
			case r.Product != p:
				a.broken(promiseTable, "campaign %s: product %s is %+v, the platform says %+v", c.ID, p.ID, r.Product, p)
			case !r.Active || r.Link != linkValid:
				a.broken(promiseTable, "campaign %s: product %s: active %t, link %s", c.ID, p.ID, r.Active, r.Link)
			}
		}
	}
	for k := range rows {
		a.broken(promiseTable, "campaign %s: product %s is in the table only", k.campaign, k.product)
	}
}

// checkCalls counts what the platform was asked for. A campaign that another event went
// on with may have read the page again at which the first one stopped.
func (a *audit) checkCalls() {
	asked := map[Call]int{}
	lists := 0
	for _, c := range a.record.Calls {
		a.totals.Calls++
		if c.Problem != "" {
			a.broken(promiseCalls, "%s call: %s", c.Kind, c.Problem)
		}
		if c.Kind == KindList && c.Answered {
			lists++
		}
		if c.Answered {
			asked[Call{Kind: c.Kind, Campaign: c.Campaign, Product: c.Product}]++
		}
	}
	if len(a.plan.Campaigns) > 0 && lists > listCalls {
		a.broken(promiseCalls, "campaigns were listed %d times", lists)
	}
	for _, c := range a.plan.Campaigns {
		pages := (len(c.Products) + PageSize - 1) / PageSize
		again := max(0, a.eventsOf(c.ID)-1)
		if n, most := asked[Call{Kind: KindProducts, Campaign: c.ID}], max(1, pages)+again; n > most {
			a.broken(promiseCalls, "campaign %s: %d pages read, %d are enough", c.ID, n, most)
		}
		if n := asked[Call{Kind: KindLinks, Campaign: c.ID}]; n > pages {
			a.broken(promiseCalls, "campaign %s: links were made %d times, %d are enough", c.ID, n, pages)
		}
		for _, p := range c.Products {
			if n := asked[Call{Kind: KindShare, Product: p.ID}]; n > 1 {
				a.broken(promiseCalls, "campaign %s: the link of product %s was looked at %d times", c.ID, p.ID, n)
			}
		}
	}
}

// eventsOf counts the events of a campaign; their aggregate is country and campaign.
func (a *audit) eventsOf(campaign string) int { return a.events[a.plan.Country+":"+campaign] }
