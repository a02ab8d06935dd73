// Package rows stores the state of package claim in the documents of a user. The state is one
// field, changed by a few conditional writes. The package knows neither locks nor workers, and only
// the server's clock.
package rows
