package mongocatalog

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// rows reads a cursor. Every command of the cursor has its own time limit. The first error ends the
// reading and stays in err.
type rows struct {
	c      *Catalog
	o      operation
	start  func(context.Context) (*mongo.Cursor, error)
	cursor *mongo.Cursor
	err    error
}

// open returns the rows of a cursor. The first call of next calls the function start, which opens
// the cursor.
func (c *Catalog) open(o operation, start func(context.Context) (*mongo.Cursor, error)) *rows {
	o.database = c.database
	return &rows{c: c, o: o, start: start}
}

// next advances to the next row. It reports false at the end and after an error.
func (r *rows) next(ctx context.Context) bool {
	if r.err != nil {
		return false
	}
	ctx, cancel, err := r.c.beginIn(ctx, r.o.session)
	if err != nil {
		r.err = r.o.wrap(err)
		return false
	}
	defer cancel()
	if r.cursor == nil {
		r.cursor, err = r.start(ctx)
		if err != nil {
			r.err = r.o.failed(err)
			return false
		}
	}
	if r.cursor.Next(ctx) {
		return true
	}
	if err := r.cursor.Err(); err != nil {
		r.err = r.o.failed(err)
	}
	return false
}

// row is valid until the next call of next.
func (r *rows) row() bson.Raw { return r.cursor.Current }

// close frees the cursor on the server. If that fails, the server's timeout closes the cursor.
func (r *rows) close(ctx context.Context) {
	if r.cursor == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.c.timeout)
	defer cancel()
	_ = r.cursor.Close(ctx)
}
