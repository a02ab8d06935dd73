// Package model holds the model of the takeover rule, lease.pml, and the test that checks it with
// spin in all its variants. A change of the rule is argued here first.
package model
