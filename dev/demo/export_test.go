package demo

import (
	"io"

	"github.com/seahub/seahub-mq/dev/books"
)

// Judge lets tests see what one sabotage does to good evidence.
func Judge(sabotage string, plan books.Plan, tables books.Tables, requests []books.Request) (books.Verdict, error) {
	r := &run{o: Options{Sabotage: sabotage}, say: newScreen(io.Discard, false)}
	e := &evidence{plan, tables, requests}
	err := r.falsify(e)
	return books.Check(e.plan, e.tables, e.requests), err
}

// Record lets tests see what becomes of the fake's record.
var Record = record
