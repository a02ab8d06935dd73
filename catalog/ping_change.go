package catalog

import "go.mongodb.org/mongo-driver/v2/bson"

// A PingChange is one way in which a ping document changes, beside a ping: a value that names the
// process and says what it needs, what it writes, and its errors. Package transition has them all,
// each once.
type PingChange interface {
	// Of returns what the change does, as errors tell it, and the process whose document it changes.
	Of() (verb, process string)
	// Update returns the change. Errors: ErrNoMatch when there is no document that it would match.
	Update() (PingUpdate, error)
}

// A PingUpdate is a conditional write of a ping document. A condemned document stays as it is.
// Fields may be those of a subdocument, as "sight.at".
type PingUpdate struct {
	Equal  bson.D   // fields with these values, numbers (int64) or dates
	Absent []string // fields that are not there

	Set   bson.D
	Dates []string // fields that get the server's clock
	Unset []string

	// Makes says that the document is made where there is none.
	Makes bool
	// Removes says that the document is deleted. One that is not there is no error then.
	Removes bool
}
