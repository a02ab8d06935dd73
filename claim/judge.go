package claim

import (
	"slices"

	"mongodlm/internal/rows"
)

// still returns a row that is claimed as before, nil if it is not.
func still(left []rows.Row, end rows.Ending) *rows.Row {
	i := slices.IndexFunc(left, func(row rows.Row) bool {
		return rows.Key(row.ID) == rows.Key(end.ID) && row.Mark.State == rows.Claimed && row.Mark.Batch == end.Batch
	})
	if i < 0 {
		return nil
	}
	return &left[i]
}

// cancelledNow returns a row that was to be tried again and is not, since it was cancelled.
func cancelledNow(left []rows.Row, end rows.Ending) *rows.Row {
	if row := still(left, end); row != nil && row.Mark.Cancelled && isRetry(end) {
		return row
	}
	return nil
}

// judge says of each row whether its claim was ended by us. A document that is gone was removed by
// us if as many are gone as the server counts.
func judge(endings []rows.Ending, ends []outcome, left []rows.Row, matched int, errs []error) {
	there := map[string]*rows.Row{}
	for i := range left {
		there[rows.Key(left[i].ID)] = &left[i]
	}
	gone, ours := 0, 0
	for _, end := range endings {
		row := there[rows.Key(end.ID)]
		switch {
		case row == nil:
			gone++
		case row.Mark.State == end.To && row.Mark.Batch == end.Batch:
			ours++
		}
	}
	for i, end := range endings {
		row := there[rows.Key(end.ID)]
		switch {
		case row != nil && row.Mark.State == end.To && row.Mark.Batch == end.Batch:
		case row == nil && end.Delete && (ends[i].c.tries > 0 || matched-ours >= gone):
		default:
			errs[i] = lost(ends[i].c, row)
		}
	}
}
