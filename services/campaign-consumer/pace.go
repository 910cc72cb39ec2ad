package main

import (
	"database/sql"

	"github.com/seahub/seahub-mq/pkg/budget"
)

// recovery is how many seconds a budget takes from a standstill back to its full rate.
const recovery = 60

// apiBudget is what all replicas share per app and country.
func apiBudget(pool *sql.DB, cfg Config) (*budget.Budget, error) {
	return budget.New(pool, budget.Spec{
		Name: "tiktok:" + cfg.Base.Country + ":" + cfg.appHash(), Start: cfg.APIRate, Least: min(0.5, cfg.APIRate),
		Most: cfg.APIRateMax, Recover: cfg.APIRateMax / recovery,
	})
}

// linkBudget is what all replicas of a country share for the host of the share links.
func linkBudget(pool *sql.DB, cfg Config) (*budget.Budget, error) {
	return budget.New(pool, budget.Spec{
		Name: "share-link:" + cfg.Base.Country, Start: cfg.LinkRate, Least: min(1, cfg.LinkRate),
		Most: cfg.LinkRate, Recover: cfg.LinkRate / recovery,
	})
}
