package demo

import (
	"context"
	"fmt"

	"github.com/seahub/seahub-mq/dev/books"
	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

// campaignSizes are the products of each campaign.
func campaignSizes() []int {
	return []int{10, 15, 20, 30, 40, 50, 60, 75, 90, 110, 130, 160, 190, 230, 280, 340, 420, 520, 700, 1000}
}

// offerCampaigns gives the platform its campaigns and returns the same for the books.
func offerCampaigns(platform *tiktokfake.Server) []books.Campaign {
	var plan []books.Campaign
	for i, n := range campaignSizes() {
		c := tiktokfake.NewCampaign(i, n)
		platform.Add(c)
		b := books.Campaign{ID: c.ID}
		for _, p := range c.Products {
			b.Products = append(b.Products, books.Product{ID: p.ID, Name: p.Name, Lowest: p.Lowest, Highest: p.Highest, Currency: p.Currency,
				Commission: p.Commission, Inventory: p.Inventory, Sales: p.Sales, Available: p.Available})
		}
		plan = append(plan, b)
	}
	return plan
}

// calls turns the fake's record into evidence.
func calls(requests []tiktokfake.Request) []books.Call {
	out := make([]books.Call, 0, len(requests))
	for _, r := range requests {
		out = append(out, books.Call{Kind: string(r.Call), Campaign: r.Campaign, Product: r.Product,
			Answered: r.Status < 400 && r.Code == 0 && r.Problem == "", Problem: r.Problem})
	}
	return out
}

// campaignsOpen counts the campaigns that are not synced yet.
func (r *run) campaignsOpen(ctx context.Context) (int, error) {
	var done int
	err := r.stack.DB.QueryRowContext(ctx, "SELECT COUNT(*) FROM mq_campaign_round WHERE state IN ('DONE', 'FAILED')").Scan(&done)
	if err != nil {
		return 0, fmt.Errorf("count campaigns: %w", err)
	}
	return len(campaignSizes()) - done, nil
}
