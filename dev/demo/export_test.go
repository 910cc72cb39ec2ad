package demo

import (
	"io"

	"github.com/seahub/seahub-mq/dev/books"
)

// Judge lets tests see what one sabotage does to good evidence.
func Judge(sabotage string, plan books.Plan, tables books.Tables, record books.Record) (books.Verdict, error) {
	r := &run{o: Options{Sabotage: sabotage}, say: newScreen(io.Discard, false)}
	e := &evidence{plan, tables, record}
	err := r.falsify(e)
	return books.Check(e.plan, e.tables, e.record), err
}

// Record, Calls and Told let tests see what becomes of the fakes' records.
var (
	Record = record
	Calls  = calls
	Told   = told
)
