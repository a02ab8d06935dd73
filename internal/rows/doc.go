// Package rows stores the state of package claim in the documents of a user: one field, its states,
// and the few conditional writes that change it. It knows neither locks nor workers, and no clock
// but the server's.
package rows
