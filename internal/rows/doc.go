// Package rows is what package claim keeps in the documents of a user: one field, its states, and
// the few conditional writes that change it, over MongoDB and in memory. It knows neither locks nor
// workers nor clocks.
package rows
